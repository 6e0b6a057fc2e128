"""What a change changed, in words."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cloud_ml.domain.jobs.spec import from_wire
from cloud_ml.domain.quotas import UNLIMITED, Limits, QuotaSpec
from cloud_ml.domain.services import spec as services
from cloud_ml.domain.spec_changes import describe_change
from cloud_ml.domain.tenancy import AccessKeySpec, Role, UserSpec
from cloud_ml.domain.workloads.spec import Desired, change_workload
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.models.services.model_service import ModelService

KEY = AccessKeySpec("red", "ann", "the secret")
JOB = from_wire(
    TrainJob("linear", "a.b", "fds://cloudml/d", environment={"TOKEN": "hidden", "A": "1"})
)
STOPPED = change_workload(JOB, lambda workload: workload.stopped(0.0))
QUOTA = QuotaSpec(train=Limits(cpu_millis=16_000, memory_bytes=64 << 30))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (UserSpec(), UserSpec(role=Role.OWNER, mail="a@b"), "role: member → owner, mail: empty → "
                                                            "a@b"),
        (
            QUOTA,
            replace(QUOTA, train=Limits(32_500, 64 << 30, count=3)),
            "train.cpu: 16 → 32.5, train.count: not set → 3",
        ),
        (QUOTA, replace(QUOTA, storage_bytes=UNLIMITED), "storage: not set → unlimited"),
        (QUOTA, replace(QUOTA, notes={"project": "x"}), "notes.project: not set → x"),
        (KEY, replace(KEY, secret="another", enabled=False), "secret: changed, enabled: true → "
                                                             "false"),
        (
            KEY,
            replace(KEY, expires_at=datetime(2026, 1, 31, tzinfo=UTC)),
            "expires_at: not set → 2026-01-31T00:00:00+00:00",
        ),
        (JOB, STOPPED, "grace: not set → 0s, desired: run → stopped"),
        (JOB, JOB, ""),
        (UserSpec(), UserSpec(mail="x" * 200), f"mail: empty → {'x' * 100}…"),
        (None, UserSpec(), ": changed"),
    ],
)  # fmt: skip
def test_a_change_says_from_what_to_what(before: object, after: object, words: str) -> None:
    assert describe_change(before, after) == words


def test_a_service_says_which_fields_were_changed() -> None:
    before = services.ServiceSpec(ModelService("digits", "v1", "fds://cloudml/d", replicas=1))
    after = replace(
        before, submitted=replace(before.submitted, replicas=3), desired=Desired.STOPPED
    )
    assert describe_change(before, after) == "replicas: 1 → 3, desired: run → stopped"


def test_values_of_variables_are_not_told() -> None:
    changed = replace(
        JOB, submitted=replace(JOB.submitted, environment={"TOKEN": "other", "B": "new"})
    )
    words = describe_change(JOB, changed)
    assert words == "environment.A: changed, environment.B: changed, environment.TOKEN: changed"
    program = replace(
        JOB.workload.program, variables={"A": "new"}, arguments=("--password", "hunter2")
    )
    words = describe_change(JOB, replace(JOB, workload=replace(JOB.workload, program=program)))
    assert set(re.findall(r"[\w.]+: (\w+)", words)) == {"changed"}
