"""What the original client reads of train jobs, as documents that must not change by accident.

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

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.records import Event, EventType, Key, Record, Summary
from cloud_ml.domain.workloads.phases import WIRE_STATES, Phase, WorkloadStatus
from cloud_ml.models.jobs.job import JobTask, JobTasks
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.jobs import views

GOLDEN = Path(__file__).with_name("golden")
NOW = datetime(2026, 11, 20, 12, 0, 0, 987_654, tzinfo=UTC)
VISION = Organisation("vision", 7)

READ_BY_DESCRIBE = [
    "org_id",
    "org_name",
    "job_name",
    "module_name",
    "trainer_uri",
    "job_args",
    "fds_endpoint",
    "fds_bucket",
    "hdfs_krb_account",
    "hdfs_endpoint",
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
    "cluster_name",
    "service_port",
    "cluster_env_var",
    "hyperparameters_name",
    "hyperparameters_goal",
    "hyperparameters_params",
    "volume_type",
    "volume_path",
    "mount_path",
    "mount_read_only",
    "prepare_command",
    "finish_command",
]
READ_BY_LIST = [
    "org_id",
    "org_name",
    "job_name",
    "state",
    "create_time",
    "update_time",
    "node_name",
]
KNOWN_STATES = {
    "running",
    "completed",
    "enqueued",
    "creating",
    "deleting",
    "failed",
    "initial",
    "pending",
}


def record(status: WorkloadStatus, **fields: Any) -> TrainJobRecord:
    wire = TrainJob("linear", "trainer.task", "fds://cloudml/linear-1.0.tar.gz", **fields)
    key = Key(TRAIN_JOB.name, "vision", "linear", "0" * 32)
    return Record(key, "mei", 1, 42, NOW, NOW + timedelta(minutes=1), from_wire(wire), status)


FULL = {
    "job_args": ["--steps", "10"],
    "cpu_limit": "0.5",
    "memory_limit": "100M",
    "gpu_limit": 0,
    "framework": "tensorflow",
    "framework_version": "1",
    "prepare_command": "date",
    "finish_command": "ls",
    "fds_endpoint": "http://127.0.0.1:8471",
    "fds_bucket": "cloudml",
    "enable_rank": 1,
    "hdfs_krb_account": "mei",
    "hdfs_krb_password": "never shown",
    "hdfs_endpoint": "hdfs://there",
}
RECORDS = {
    "queued": record(WorkloadStatus(reason="Submitted", queued_at=NOW)),
    "running": record(
        WorkloadStatus(Phase.RUNNING, reason="Started", started_at=NOW, node="box"), **FULL
    ),
    "failed": record(
        WorkloadStatus(
            Phase.FAILED, reason="NonZeroExit", message="master-0 exited with code 1", exit_code=1
        )
    ),
    "completed": record(WorkloadStatus(Phase.SUCCEEDED, reason="Completed")),
    "deleting": replace(
        record(WorkloadStatus(Phase.FAILED, reason="NonZeroExit")), delete_requested_at=NOW
    ),
}
EVENTS = [
    Event(NOW, "Submitted", "submitted by mei", id=1),
    Event(
        NOW + timedelta(seconds=3),
        "NonZeroExit",
        "master-0 exited with code 1",
        EventType.WARNING,
        id=2,
    ),
]


@pytest.mark.parametrize("name", RECORDS)
def test_documents_are_as_they_were(name: str) -> None:
    golden = json.loads((GOLDEN / f"train_{name}.json").read_text("utf-8"))
    assert views.train_document(RECORDS[name], VISION) == golden


def test_the_events_document_is_as_it_was() -> None:
    golden = json.loads((GOLDEN / "train_events.json").read_text("utf-8"))
    assert views.events_document("linear", EVENTS) == golden


def test_the_list_row_is_as_it_was() -> None:
    golden = json.loads((GOLDEN / "train_row.json").read_text("utf-8"))
    assert views.train_row(_line(Phase.RUNNING), VISION) == golden


@pytest.mark.parametrize("name", RECORDS)
def test_every_key_that_the_client_reads_is_there(name: str) -> None:
    document = views.train_document(RECORDS[name], VISION)
    assert set(READ_BY_DESCRIBE) <= set(document)
    assert all(document[key] is not None for key in READ_BY_LIST)


@pytest.mark.parametrize("phase", Phase)
def test_no_column_of_the_list_is_null(phase: Phase) -> None:
    row = views.train_row(_line(phase), VISION)
    assert set(READ_BY_LIST) <= set(row)
    assert all(isinstance(value, str) for value in row.values())
    assert row["state"] == WIRE_STATES[phase]
    assert row["state"] in KNOWN_STATES


def test_passwords_are_on_neither_surface() -> None:
    both = json.dumps(
        [views.train_document(RECORDS["running"], VISION), dict(views.job(RECORDS["running"]).spec)]
    )
    assert "never shown" not in both


def test_metrics_are_summed_over_running_tasks() -> None:
    def task(index: int, *, running: bool = True) -> JobTask:
        return JobTask(name=f"worker-{index}", running=running, cores=0.5, memory_bytes=100)

    young = JobTask(name="worker-3", running=True)
    tasks = JobTasks(attempt=1, items=[task(0), task(1), task(2, running=False), young])
    assert views.metrics_document(tasks) == {
        "cpu": 100.0,
        "memory": 200,
        "network_receive": 0,
        "network_transmit": 0,
    }


def _line(phase: Phase) -> Summary:
    return Summary(
        RECORDS["queued"].key,
        "mei",
        1,
        phase.value,
        NOW,
        NOW + timedelta(minutes=1),
        deleting=False,
    )
