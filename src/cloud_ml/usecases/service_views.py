"""Model services as the two HTTP surfaces show them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from cloud_ml.domain.jobs.phases import JobStatus
from cloud_ml.domain.jobs.spec import JobSpec
from cloud_ml.domain.records import Record, Summary
from cloud_ml.domain.services.decide import ServiceRecord
from cloud_ml.domain.services.scale import replicas_of
from cloud_ml.domain.services.spec import TEMPLATE_LABEL
from cloud_ml.domain.services.status import WIRE_STATES, ServicePhase
from cloud_ml.models.model_service import ModelService
from cloud_ml.models.service import Replica, Service, ServiceSummary


def service(record: ServiceRecord, replicas: Sequence[Record[JobSpec, JobStatus]] = (), host: str = "") -> Service:
    """A service as the modern surface answers it. ``host`` is where the gateway is reached."""
    name, _, version = record.key.name.partition("/")
    status = record.status
    return Service(
        uid=record.key.uid,
        name=name,
        version=version,
        org=record.key.org,
        owner=record.owner,
        revision=record.revision,
        phase=status.phase.value,
        state=_state(status.phase, deleting=record.delete_requested_at is not None),
        created_at=record.created_at,
        updated_at=record.updated_at,
        address=f"{host}:{status.port}" if status.port and host else "",
        reason=status.reason,
        message=status.message,
        wanted=replicas_of(record.spec, status),
        ready=status.ready,
        deleting=record.delete_requested_at is not None,
        replicas=[_replica(each, record.spec.template) for each in replicas],
        spec=submitted(record.spec.submitted),
    )


def summary(line: Summary, host: str = "", port: int = 0) -> ServiceSummary:
    """A line of the modern list."""
    name, _, version = line.key.name.partition("/")
    return ServiceSummary(
        uid=line.key.uid,
        name=name,
        version=version,
        org=line.key.org,
        owner=line.owner,
        phase=line.index,
        state=_state(ServicePhase(line.index), deleting=line.deleting),
        created_at=line.created_at,
        updated_at=line.updated_at,
        address=f"{host}:{port}" if port and host else "",
        deleting=line.deleting,
    )


def submitted(model: ModelService) -> dict[str, Any]:
    """The fields that were given."""
    return {each.name: value for each in fields(model) if (value := getattr(model, each.name)) is not None}


def _state(phase: ServicePhase, *, deleting: bool) -> str:
    return "deleting" if deleting else WIRE_STATES[phase]


def _replica(record: Record[JobSpec, JobStatus], template: int) -> Replica:
    status = record.status
    return Replica(
        number=int(record.key.name.rpartition("-")[2]),
        uid=record.key.uid,
        phase=status.phase.value,
        ready=status.phase.value == "Running",
        current=(record.spec.submitted.labels or {}).get(TEMPLATE_LABEL) == str(template),
        attempt=status.attempt,
        reason=status.reason,
        message=status.message,
        runtime=status.runtime,
    )
