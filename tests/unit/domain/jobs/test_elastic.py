"""Jobs that have as many tasks as there is room for: what may be asked."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import codec
from cloud_ml.models.jobs.train_job import TrainJob
from support.jobs import spec_of

TORCH = {"framework": "pytorch"}
TWO_TO_EIGHT = {"worker": {"min": 2, "max": 8}}


def workload(**fields: Any) -> WorkloadSpec:
    return spec_of(**fields).workload


@pytest.mark.parametrize(
    ("fields", "roles"),
    [
        ({"worker_count": "2:8", **TORCH}, {"worker": (2, 8)}),
        ({"worker_count": " 2 : 8", **TORCH}, {"worker": (2, 8)}),
        ({"elastic": TWO_TO_EIGHT, **TORCH}, {"worker": (2, 8)}),
        ({"elastic": {"worker": "2:8"}, **TORCH}, {"worker": (2, 8)}),
        ({"elastic": {"worker": {"min": "1", "max": "2"}}, **TORCH}, {"worker": (1, 2)}),
        ({"elastic": TWO_TO_EIGHT, "worker_count": 8, **TORCH}, {"worker": (2, 8)}),
        ({"elastic": TWO_TO_EIGHT, "worker_count": "2:8", **TORCH}, {"worker": (2, 8)}),
        ({"worker_count": "2:8", "worker_spec": {"cpu_limit": 1}, **TORCH}, {"worker": (2, 8)}),
        ({"elastic": TWO_TO_EIGHT, "worker_spec": {"count": 8}, **TORCH}, {"worker": (2, 8)}),
        (
            {"cluster_spec": {"worker": {}, "chief": {}}, "elastic": TWO_TO_EIGHT, **TORCH},
            {"chief": (None, 1), "worker": (2, 8)},
        ),
        (
            {
                "cluster_spec": {"a": {}},
                "elastic": {"a": {"min": 1, "max": 3}},
                "recipe": "cluster",
            },
            {"a": (1, 3)},
        ),
        (
            {"worker_count": "2:8", "framework": "tensorflow"},
            {"master": (None, 1), "worker": (2, 8)},
        ),
        ({"worker_count": "1:8", "recipe": "mpi"}, {"launcher": (None, 1), "worker": (1, 8)}),
        ({"worker_count": "2:8"}, {"master": (None, 1), "worker": (2, 8)}),
    ],
)
def test_roles_have_a_least_and_a_most(fields: dict[str, Any], roles: dict[str, Any]) -> None:
    made = workload(**fields)
    assert {role.name: (role.least, role.replicas) for role in made.roles} == roles
    assert made.is_elastic
    assert made.elastic_every_s == 600


def test_the_time_between_two_changes_is_a_field() -> None:
    made = workload(elastic={**TWO_TO_EIGHT, "every_s": 60}, **TORCH)
    assert made.elastic_every_s == 60
    assert not workload(worker_count=8, **TORCH).is_elastic


def test_it_travels_as_it_was_said() -> None:
    job = TrainJob("a", "m", "fds://b/t", worker_count="2 : 8", elastic={"worker": "2:8"}, **TORCH)  # type: ignore[arg-type]
    assert codec.decode(TrainJob, codec.encode(job)) == job
    assert job.worker_count == "2:8"
    assert job.elastic == TWO_TO_EIGHT


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"worker_count": "8:2"}, "worker_count", "the least, 8, is more than the most, 2"),
    ({"worker_count": "0:2"}, "worker_count", "from 1 to 1000 tasks"),
    ({"worker_count": "1:1"}, "worker_count", "a job of one task cannot be elastic"),
    ({"worker_count": "2:1001"}, "worker_count", "from 1 to 1000 tasks"),
    ({"worker_count": "2:"}, "worker_count", "a whole number"),
    ({"ps_count": "1:2", "worker_count": 1}, "ps_count", "a whole number"),
    ({"elastic": "2:8"}, "elastic", "an object such as"),
    ({"elastic": {}}, "elastic", "an object such as"),
    ({"elastic": {"every_s": 5}}, "elastic", "an object such as"),
    ({"elastic": {**TWO_TO_EIGHT, "every_s": -1}}, "elastic.every_s", "a whole number from 0"),
    ({"elastic": {"worker": 8}}, "elastic.worker", 'an object such as {"min": 2'),
    ({"elastic": {"worker": {"min": 2}}}, "elastic.worker.max", "is missing"),
    ({"elastic": {"worker": {"min": 0, "max": 2}}}, "elastic.worker.min", "from 1 to 1000"),
    ({"elastic": {"worker": {"min": 3, "max": 2}}}, "elastic.worker", "the least, 3, is more"),
    ({"elastic": {"worker": {"min": 1, "max": 1}}}, "elastic.worker", "a job of one task"),
    ({"elastic": {"worker": {"min": 1, "max": 2, "at": 1}}}, "elastic.worker.at", "not a known"),
    ({"elastic": {"Worker": {"min": 1, "max": 2}}}, "elastic", "lower-case"),
    ({"elastic": {"trainer": "1:2"}}, "elastic.trainer", "names no role of the job"),
    ({"elastic": {"master": "1:2"}}, "elastic.master", "the number of master tasks is fixed"),
    ({"elastic": {"launcher": "1:2"}, "recipe": "mpi"}, "elastic.launcher", "is fixed"),
    ({"elastic": {"ps": "1:2"}, "worker_count": 2}, "elastic.ps", "ps tasks is fixed"),
    ({"elastic": TWO_TO_EIGHT, "worker_count": 4}, "worker_count", "elastic.worker is 2:8"),
    ({"elastic": TWO_TO_EIGHT, "worker_count": "2:4"}, "worker_count", "elastic.worker is 2:8"),
    (
        {"elastic": TWO_TO_EIGHT, "cluster_spec": {"worker": {"count": 4}}},
        "cluster_spec.worker.count",
        "elastic.worker is 2:8",
    ),
    (
        {"worker_count": "2:8", "cluster_spec": {"worker": {}}},
        "worker_count",
        "cluster_spec and worker_count are both set",
    ),
    ({"worker_count": "2:8", "worker_spec": {"count": 4}}, "worker_spec.count", "worker is 2:8"),
    ({"worker_count": "2:8", "recipe": "dask"}, "recipe", "mpi, pytorch"),
    ({"worker_count": "2:8", "task_retries": 1}, "task_retries", "start again together"),
    (
        {
            "worker_count": "2:8",
            "restart": {"rules": [{"exit_codes": [3], "action": "restart-task"}]},
        },
        "restart.rules[0].action",
        "start again together",
    ),
    ({"elastic": TWO_TO_EIGHT, "array": "0-3"}, "elastic", "array and elastic are both set"),
    ({"worker_count": "2:8", "array": "0-3"}, "worker_count", "are both set"),
    ({"worker_count": "2:8", "framework": "scikit-learn"}, "framework", "no distributed recipe"),
    ({"worker_count": "2:8", "ps_count": 1, "framework": None}, "worker_count", "parameter servers"),
    (
        {"cluster_spec": {"ps": {}, "worker": {}}, "elastic": TWO_TO_EIGHT, "recipe": "cluster"},
        "elastic",
        "parameter servers",
    ),
    (
        {"worker_count": "2:8", "framework": "tensorflow", "framework_version": "1.15"},
        "worker_count",
        "tasks of TensorFlow 1 start again alone",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "field", "message"), CASES)
def test_what_cannot_be_elastic_is_refused(
    fields: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        workload(**{**TORCH, **fields})
    assert refused.value.field == field
    assert message in refused.value.message
