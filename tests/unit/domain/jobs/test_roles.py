"""Which tasks a job has, and the recipe that runs them."""

from __future__ import annotations

from typing import Any

import pytest

from cloud_ml.domain.jobs.roles import recipe_of
from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.recipes import RECIPE_NAMES
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.recipes.choosing import RECIPES
from support.jobs import spec_of


def workload(**fields: Any) -> WorkloadSpec:
    return spec_of(**fields).workload


@pytest.mark.parametrize(
    ("fields", "tasks", "recipe"),
    [
        ({}, "master-0", "single"),
        ({"master_spec": {"replica_count": 1}}, "master-0", "single"),
        ({"ps_count": 2, "worker_count": 2}, "master-0 worker-0 worker-1 ps-0 ps-1", "detected"),
        ({"worker_count": "2"}, "master-0 worker-0 worker-1", "detected"),
        ({"worker_count": 1, "framework": "tensorflow"}, "master-0 worker-0", "tensorflow"),
        ({"worker_count": 2, "framework": "pytorch"}, "worker-0 worker-1", "pytorch"),
        ({"worker_count": 2, "framework": "jax"}, "worker-0 worker-1", "jax"),
        ({"worker_count": 2, "framework": "xgboost"}, "worker-0 worker-1", "xgboost"),
        ({"worker_count": 2, "framework": "lightgbm"}, "worker-0 worker-1", "lightgbm"),
        ({"worker_count": 2, "framework": "keras"}, "worker-0 worker-1", "detected"),
        ({"worker_count": 2, "recipe": "cluster"}, "worker-0 worker-1", "cluster"),
        ({"worker_count": 2, "recipe": "dask"}, "client-0 scheduler-0 worker-0 worker-1", "dask"),
        (
            {"cluster_spec": {"worker": {"count": 1}, "client": {}}, "recipe": "dask"},
            "client-0 scheduler-0 worker-0",
            "dask",
        ),
        ({"worker_count": 2, "recipe": "mpi"}, "launcher-0 worker-0 worker-1", "mpi"),
        ({"recipe": "pytorch"}, "master-0", "pytorch"),
        (
            {"worker_spec": {"replica_count": 2}, "recipe": "cluster"},
            "worker-0 worker-1",
            "cluster",
        ),
        (
            {"cluster_spec": {"ps": {"count": "1"}, "worker": {"count": 2}, "chief": {}}},
            "chief-0 worker-0 worker-1 ps-0",
            "detected",
        ),
        (
            {"cluster_spec": {"evaluator": {}, "b": {}, "a": {}}, "recipe": "cluster"},
            "b-0 a-0 evaluator-0",
            "cluster",
        ),
        ({"array": "1,3,8-9"}, "task-1 task-3 task-8 task-9", "array"),
        ({"array": "5", "recipe": "array", "framework": "python"}, "task-5", "array"),
    ],
)
def test_roles_make_tasks_the_chief_first(fields: dict[str, Any], tasks: str, recipe: str) -> None:
    made = workload(**fields)
    assert " ".join(made.tasks) == tasks
    assert made.recipe == recipe
    assert made.task_count == len(made.tasks)
    assert made.has_peers is (recipe not in ("single", "array"))
    assert made.is_array is (recipe == "array")


def test_a_role_without_limits_has_those_of_the_job() -> None:
    roles = {"worker": {"cpu_limit": "0.5"}, "ps": {"memory_limit": "2G", "gpu_limit": "1"}}
    worker, ps = workload(cluster_spec=roles, cpu_limit="2", memory_limit="1G").roles
    assert (worker.resources.cpu_millis, worker.resources.memory_bytes) == (500, 2**30)
    assert (ps.resources.cpu_millis, ps.resources.memory_bytes) == (2000, 2**31)
    assert (worker.resources.gpus, ps.resources.gpus) == (0, 1)


def test_arguments_of_a_role_are_words() -> None:
    (worker,) = workload(cluster_spec={"worker": {"task_args": "--shard 'a b'"}}).roles
    assert worker.arguments == ("--shard", "a b")


@pytest.mark.parametrize(
    ("fields", "field", "allowed"),
    [
        ({"worker_count": 2, "framework": "scikit-learn"}, "framework", "or a recipe"),
        ({"task_retries": 2}, "task_retries", "max_retries"),
        ({"recipe": "horovod"}, "recipe", "cluster, dask"),
        ({"cluster_spec": {"ps": {}}, "ps_count": 1}, "ps_count", "leave it out"),
        ({"cluster_spec": {"ps": {}}, "worker_spec": {"count": 1}}, "worker_spec", "leave it out"),
        ({"worker_count": 2, "worker_spec": {"count": 3}}, "worker_count", "the count of"),
        ({"worker_count": 2, "master_spec": {"count": 2}}, "master_spec.replica_count", "1"),
        ({"master_spec": {"replica_count": 2}}, "master_spec.replica_count", "1"),
        ({"master_spec": {"cpu_limit": "1"}}, "master_spec.cpu_limit", "of the job itself"),
        ({"cluster_spec": {"w": {"task_args": "'"}}}, "cluster_spec.w.task_args", "quoting"),
        ({"cluster_spec": {"w": {"count": 0}}}, "cluster_spec.w.count", "1"),
        ({"array": "0-3", "worker_count": 2}, "worker_count", "know no other"),
        ({"array": "0-3", "ps_count": 1}, "ps_count", "know no other"),
        ({"array": "0-3", "cluster_spec": {"w": {}}}, "cluster_spec", "know no other"),
        ({"array": "0-3", "master_spec": {"count": 1}}, "master_spec", "know no other"),
        ({"array": "0-3", "recipe": "cluster"}, "recipe", "array, or leave it out"),
        ({"recipe": "array"}, "array", "0-15"),
        ({"max_failed": 1}, "max_failed", "0 for a job without array"),
        ({"array": "0-3", "max_failed": -1}, "max_failed", "from 0"),
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any], field: str, allowed: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        workload(**fields)
    assert caught.value.field == field
    assert allowed in (caught.value.allowed or "")


def test_every_recipe_that_may_be_asked_for_is_there() -> None:
    assert set(RECIPE_NAMES) == set(RECIPES) - {"single", "detected"}


@pytest.mark.parametrize(
    ("given", "suggestion"),
    [("torch", "pytorch"), ("PyTorch", "pytorch"), ("tf", "tensorflow"), ("jaxx", "jax")],
)
def test_a_recipe_by_another_name_is_told_its_own(given: str, suggestion: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        TrainJob("a", "task", "fds://b/t.zip", worker_count=2, recipe=given)
    assert (caught.value.field, caught.value.hint) == ("recipe", f"Did you mean {suggestion}?")
    assert all(name in (caught.value.allowed or "") for name in RECIPE_NAMES)


def test_a_recipe_that_was_assigned_later_is_refused_too() -> None:
    job = TrainJob("a", "task", "fds://b/t.zip", worker_count=2)
    job.recipe = "torch"
    with pytest.raises(InvalidRequest, match="recipe is 'torch'"):
        job.validate()
    with pytest.raises(InvalidRequest, match="recipe is 'torch'"):
        recipe_of(job)


@pytest.mark.parametrize("given", ["slurm", "x" * 100])
def test_a_recipe_like_no_other_is_only_refused(given: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        workload(worker_count=2, recipe=given)
    assert caught.value.hint is None
