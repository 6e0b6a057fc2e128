"""TensorBoards as the original wire shows them. Pure."""

from __future__ import annotations

from typing import Any

from cloud_ml.domain.tensorboards.spec import TensorBoardRecord
from cloud_ml.domain.workloads.phases import WIRE_STATES, Phase
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.jobs import views
from cloud_ml.usecases.tensorboards.tensorboards import ApplicationAddresses


def document(
    record: TensorBoardRecord, organisation: Organisation, addresses: ApplicationAddresses
) -> dict[str, Any]:
    """Every key that the original client reads is there, and none is null."""
    spec = record.spec
    shown = spec.logdir or spec.sources[0].uri
    return {
        "org_id": str(organisation.number),
        "org_name": organisation.name,
        "tensorboard_name": record.key.name,
        "logdir": shown,
        "service_port": str(addresses.port),
        "docker_image": "",
        "docker_command": "",
        "framework": "",
        "framework_version": "",
        "state": _state(record),
        "create_time": views.original_time(record.created_at),
        "update_time": views.original_time(record.updated_at),
        "address": addresses.origin(record.key.uid),
        "fds_endpoint": "",
        "fds_bucket": shown.removeprefix("fds://").partition("/")[0],
    }


def _state(record: TensorBoardRecord) -> str:
    """One that pauses is running to the original client: it starts with the first request."""
    if record.delete_requested_at is not None:
        return "deleting"
    phase = record.status.phase
    return "running" if phase is Phase.PAUSED else WIRE_STATES[phase]
