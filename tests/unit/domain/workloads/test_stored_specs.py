"""Specs as version 0.1 stored them are read in today's form."""

from __future__ import annotations

import json
from pathlib import Path

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.services import spec as services
from cloud_ml.domain.services.kind import REPLICA
from cloud_ml.domain.workloads.spec import change_workload
from cloud_ml.models import codec
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.services.model_service import ModelService

STORED = json.loads(Path(__file__).with_name("stored_0_1.json").read_text())
JOB = TrainJob(
    "linear",
    "trainer.task",
    "fds://cloudml/t.tar.gz",
    job_args="--lr 0.1 'a b'",
    cpu_limit="0.5",
    memory_limit="100M",
    environment={"A": "1"},
    output_path="fds://cloudml/out",
    max_retries=3,
    wall_time_limit="2h",
    disk_limit="1G",
    prepare_command="true",
    fds_bucket="cloudml",
    enable_rank=1,
    requirements=["numpy"],
)
SERVICE = ModelService(
    "churn",
    "v1",
    "fds://cloudml/m",
    cpu_limit="1",
    memory_limit="1G",
    environment={"B": "2"},
    finish_command="bye",
    secrets=["k"],
)


def test_a_train_job() -> None:
    spec = from_wire(JOB, add_arguments=True)
    stopped = change_workload(spec, lambda workload: workload.stopped(5.0))
    assert TRAIN_JOB.decode_spec(STORED["train_job"]) == stopped
    assert TRAIN_JOB.decode_spec(codec.encode(stopped)) == stopped


def test_a_replica_which_was_stored_as_a_train_job() -> None:
    spec = services.replica(services.Release(3, SERVICE))
    assert REPLICA.decode_spec(STORED["replica"]) == spec
    assert REPLICA.decode_spec(codec.encode(spec)) == spec
