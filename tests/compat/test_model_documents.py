"""What the original client reads of model services, as documents that must not change by accident.

The files under ``golden`` are what a server answers. A change there is a change of the wire: make
it by hand, and only when an old client can live with it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.records import Key, Record, Summary
from cloud_ml.domain.services.kind import MODEL_SERVICE, ReplicaRecord, ServiceRecord
from cloud_ml.domain.services.spec import Release, from_wire, replica
from cloud_ml.domain.services.status import (
    DesiredReplica,
    FailedRelease,
    ServicePhase,
    ServiceStatus,
)
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.models.services.service import ReplicaMetrics, ServiceMetrics
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.models import views as service_views
from cloud_ml.usecases.models.replicas import Replicas

GOLDEN = Path(__file__).with_name("golden")
NOW = datetime(2026, 11, 20, 12, 0, 0, 987_654, tzinfo=UTC)
VISION = Organisation("vision", 7)
HOST = "127.0.0.1"

READ_BY_DESCRIBE = [
    "org_id",
    "org_name",
    "model_name",
    "model_version",
    "model_uri",
    "model_args",
    "fds_endpoint",
    "fds_bucket",
    "service_port",
    "replicas",
    "cpu_limit",
    "memory_limit",
    "gpu_limit",
    "docker_image",
    "docker_command",
    "framework",
    "framework_version",
    "state",
    "create_time",
    "update_time",
    "prepare_command",
    "finish_command",
    "address",
]
READ_BY_LIST = [
    "org_id",
    "org_name",
    "model_name",
    "model_version",
    "address",
    "state",
    "create_time",
    "update_time",
]
KNOWN_STATES = {"running", "creating", "processing", "deleting", "failed", "initial"}


def record(status: ServiceStatus, **fields: Any) -> ServiceRecord:
    wire = ModelService("linear", "v1", "fds://cloudml/linear", **fields)
    key = Key(MODEL_SERVICE.name, "vision", "linear/v1", "0" * 32)
    return Record(key, "mei", 1, 42, NOW, NOW + timedelta(minutes=1), from_wire(wire), status)


FULL = {
    "model_args": ["--max_batch_size", "8"],
    "replicas": 2,
    "cpu_limit": "0.5",
    "memory_limit": "100M",
    "gpu_limit": 0,
    "framework": "tensorflow",
    "framework_version": "2",
    "prepare_command": "date",
    "finish_command": "ls",
    "fds_endpoint": "http://127.0.0.1:8471",
    "fds_bucket": "cloudml",
    "enable_rank": 1,
    "service_schema": "GRPC",
    "tensorflow_service_http": True,
}
RECORDS = {
    "creating": record(ServiceStatus(port=8600)),
    "running": record(ServiceStatus(ServicePhase.RUNNING, port=8600, ready=2), **FULL),
    "failed": record(
        ServiceStatus(
            ServicePhase.FAILED,
            reason="TrainerInvalid",
            message="fds://cloudml/linear has no model",
        )
    ),
    "saved": record(ServiceStatus(ServicePhase.SAVED), save_mode=True),
    "deleting": replace(
        record(ServiceStatus(ServicePhase.STOPPING, port=8600)), delete_requested_at=NOW
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_documents_are_as_they_were(name: str) -> None:
    golden = json.loads((GOLDEN / f"model_{name}.json").read_text("utf-8"))
    assert service_views.model_document(RECORDS[name], VISION, HOST) == golden


def test_the_list_row_is_as_it_was() -> None:
    golden = json.loads((GOLDEN / "model_row.json").read_text("utf-8"))
    assert service_views.model_row(_line(ServicePhase.RUNNING), VISION, HOST, 8600) == golden


@pytest.mark.parametrize("name", RECORDS)
def test_every_key_that_the_client_reads_is_there(name: str) -> None:
    document = service_views.model_document(RECORDS[name], VISION, HOST)
    assert set(READ_BY_DESCRIBE) <= set(document)
    assert all(document[key] is not None for key in READ_BY_LIST)
    assert "use_seldon" not in document, "its client would read another document"


@pytest.mark.parametrize("phase", ServicePhase)
@pytest.mark.parametrize("port", [0, 8600])
def test_no_column_of_the_list_is_null(phase: ServicePhase, port: int) -> None:
    row = service_views.model_row(_line(phase), VISION, HOST, port)
    assert set(READ_BY_LIST) <= set(row)
    assert all(isinstance(value, str) for value in row.values())
    assert row["state"] in KNOWN_STATES


def test_an_address_is_split_at_its_only_colon() -> None:
    host, port = service_views.model_document(RECORDS["running"], VISION, HOST)["address"].split(
        ":"
    )
    assert (host, int(port)) == (HOST, 8600)


def test_it_is_running_when_as_many_replicas_answer_as_it_says() -> None:
    after_an_update = record(ServiceStatus(ServicePhase.RUNNING, port=8600, ready=1), **FULL)
    document = service_views.model_document(after_an_update, VISION, HOST)
    assert (document["replicas"], document["state"]) == (2, "processing")
    document = service_views.model_document(RECORDS["running"], VISION, HOST)
    assert (document["replicas"], document["state"]) == (2, "running")


def test_a_failed_service_has_no_address() -> None:
    failed = record(
        ServiceStatus(
            ServicePhase.FAILED, port=8600, reason="ModelLoadFailed", message="it is junk"
        )
    )
    document = service_views.model_document(failed, VISION, HOST)
    assert (document["state"], document["address"], document["http_address"]) == ("failed", "", "")
    assert document["message"] == "ModelLoadFailed: it is junk"
    row = service_views.model_row(_line(ServicePhase.FAILED), VISION, HOST, 8600)
    assert (row["state"], row["address"]) == ("failed", "")


def test_a_failed_service_that_was_changed_is_starting() -> None:
    failed = record(
        ServiceStatus(
            ServicePhase.FAILED, failed=(FailedRelease(1, "ModelLoadFailed", "it is junk"),)
        )
    )
    assert service_views.service(failed).phase == "Failed"
    changed = replace(failed, spec=replace(failed.spec, template=2))
    assert service_views.service(changed).phase == "Starting"
    assert service_views.model_document(changed, VISION, HOST)["state"] == "creating"


def replica_of(number: int, phase: Phase) -> ReplicaRecord:
    spec = replica(Release(1, RECORDS["running"].spec.submitted))
    key = Key("replica", "vision", f"{'0' * 32}-{number}", f"{number:032}")
    return Record(key, "mei", 1, 42, NOW, NOW, spec, WorkloadStatus(phase))


@pytest.mark.parametrize(
    ("phases", "ready", "phase"),
    [
        ((Phase.RUNNING, Phase.RUNNING), 2, "Running"),
        ((Phase.RUNNING, Phase.RESTARTING), 1, "Degraded"),
        ((Phase.STARTING, Phase.RESTARTING), 0, "Degraded"),
    ],
)
def test_a_service_says_what_its_replicas_say(
    phases: tuple[Phase, ...], ready: int, phase: str
) -> None:
    """Also where a replica ended after the last look at its service."""
    desired_replicas = (DesiredReplica(1, 1), DesiredReplica(2, 1))
    status = ServiceStatus(
        ServicePhase.RUNNING, port=8600, ready=2, wishes=desired_replicas, answering=(1, 2)
    )
    rows = Replicas([replica_of(number, each) for number, each in enumerate(phases, 1)])
    shown = service_views.service(record(status, **FULL), rows, HOST)
    assert (shown.ready, shown.phase) == (ready, phase)
    assert sum(one.ready for one in shown.replicas) == shown.ready


def test_a_replica_whose_process_runs_answers_only_when_its_model_does() -> None:
    status = ServiceStatus(
        ServicePhase.STARTING, wishes=(DesiredReplica(1, 1), DesiredReplica(2, 1))
    )
    shown = service_views.service(
        record(status, **FULL), Replicas([replica_of(1, Phase.RUNNING)]), HOST
    )
    assert (shown.ready, [one.ready for one in shown.replicas]) == (0, [False])


def test_metrics_are_summed_over_replicas() -> None:
    one = ReplicaMetrics(number=1, uid="a", phase="Running", cores=0.5, memory_bytes=100)
    young = ReplicaMetrics(number=2, uid="b", phase="Starting")
    found = service_views.model_metrics(ServiceMetrics(items=[one, replace(one, number=3), young]))
    assert found == {"cpu": 100.0, "memory": 200, "network_receive": 0, "network_transmit": 0}


def _line(phase: ServicePhase) -> Summary:
    return Summary(
        RECORDS["creating"].key,
        "mei",
        1,
        phase.value,
        NOW,
        NOW + timedelta(minutes=1),
        deleting=False,
    )
