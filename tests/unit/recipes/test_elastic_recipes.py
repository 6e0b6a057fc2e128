"""What tasks of an elastic job find: the others of their attempt, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from cloud_ml.domain.jobs.elastic import RECIPES as ELASTIC
from cloud_ml.domain.workloads.worlds import least_of, most_of, within
from cloud_ml.engines.base import JobPaths
from cloud_ml.engines.gang import Gang, GangKey
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.choosing import RECIPES
from support.jobs import spec_of

Environment = Mapping[str, str]


def gang_of(recipe: str, *, small: bool) -> Gang:
    named = {} if recipe == "detected" else {"recipe": recipe}
    workload = spec_of(worker_count="2:4", **named).workload
    attempt = within(workload, (least_of if small else most_of)(workload))
    hosts = {name: name for name in attempt.tasks}
    return RECIPES[recipe].plan(
        attempt,
        PlanContext(
            key=GangKey("u", 1),
            org="o",
            tenant=1,
            job_name="linear",
            places=JobPaths("/storage", "/fds", hosts, addresses=dict.fromkeys(hosts, "127.0.0.1")),
            mounts=(),
            trainer=None,
            network="tenant",
            ports=tuple(range(20000, 20000 + attempt.port_count)),
        ),
    )


def environment_of(gang: Gang, task: str) -> Environment:
    process = next(one for one in gang.processes if one.name == task)
    last = gang.variants[-1].environments if gang.variants else {}
    return {**process.environment, **last.get(task, {})}


SIZES: Mapping[str, Callable[[Environment], int]] = {
    "pytorch": lambda environment: int(environment["WORLD_SIZE"]),
    "jax": lambda environment: int(environment["JAX_NUM_PROCESSES"]),
    "xgboost": lambda environment: int(environment["DMLC_NUM_WORKER"]),
    "lightgbm": lambda environment: len(environment["CLOUDML_MACHINES"].split(",")),
    "tensorflow": lambda environment: len(
        json.loads(environment["TF_CONFIG"])["cluster"]["worker"]
    ),
}


@pytest.mark.parametrize("recipe", ELASTIC)
@pytest.mark.parametrize(("small", "workers"), [(True, 2), (False, 4)])
def test_tasks_find_those_of_their_attempt(recipe: str, small: bool, workers: int) -> None:
    gang = gang_of(recipe, small=small)
    names = [one.name for one in gang.processes if one.role == "worker"]
    assert names == [f"worker-{index}" for index in range(workers)]
    environment = environment_of(gang, "worker-1")
    assert len(json.loads(environment["CLOUDML_CLUSTER"])["worker"]) == workers
    if recipe in SIZES:
        assert SIZES[recipe](environment) == workers
