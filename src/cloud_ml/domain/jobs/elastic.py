"""Which roles of a train job have as many tasks as there is room for. Pure.

The number of tasks changes only with a new attempt, so the recipe must be one whose tasks start
and end together.
"""

from __future__ import annotations

from collections.abc import Mapping

from cloud_ml.domain.workloads.exits import ExitAction, ExitRules
from cloud_ml.errors import InvalidRequest
from cloud_ml.models import common
from cloud_ml.models.jobs.elastic import TaskRange, range_in, ranges_of
from cloud_ml.models.jobs.train_job import TrainJob

_TENSORFLOW = "tensorflow"
RECIPES = ("cluster", "detected", "jax", "lightgbm", "mpi", "pytorch", _TENSORFLOW, "xgboost")
"""Recipes whose tasks start again together."""
_FIXED = ("ps", "evaluator", "master", "chief", "launcher")
"""Roles of which another number of tasks would be another job."""


def elastic_roles(job: TrainJob) -> Mapping[str, TaskRange]:
    """Role → how many tasks it may have, for those that are elastic.

    Raises:
        InvalidRequest: A field contradicts another.
    """
    found = ranges_of(job.elastic)
    if (fixed := next((role for role in found if role in _FIXED), None)) is not None:
        why = f"the number of {fixed} tasks is fixed"
        raise _refuse(f"elastic.{fixed}", str(found[fixed]), why, "another role, such as worker")
    counted = range_in("worker_count", job.worker_count)
    if counted is None:
        return found
    if (named := found.get("worker")) not in (None, counted):
        raise InvalidRequest(
            f"worker_count is {counted} and elastic.worker is {named}",
            field="worker_count",
            value=str(counted),
            allowed=f"{named}, or leave it out",
        )
    return {**found, "worker": counted}


def check_count(role: str, tasks: TaskRange, count: int | str | None, field: str) -> None:
    """Refuse another number of tasks than the most of an elastic role.

    Raises:
        InvalidRequest: Names ``field``.
    """
    if count not in (None, tasks.most):
        raise InvalidRequest(
            f"{field} is {count} and elastic.{role} is {tasks}",
            field=field,
            value=count,
            allowed=f"{tasks.most}, or leave it out",
        )


def check_elastic(job: TrainJob, recipe: str, exits: ExitRules) -> None:
    """Refuse an elastic job whose tasks do not stand or fall together.

    Raises:
        InvalidRequest: Names field, value and what is allowed.
    """
    if not (roles := elastic_roles(job)):
        return
    field = "elastic" if job.elastic else "worker_count"
    if recipe not in RECIPES:
        raise _refuse("recipe", recipe, f"{field} is set", _recipes())
    if job.ps_count or job.ps_spec or "ps" in (job.cluster_spec or {}):
        why = "the job has parameter servers, which hold a part of the model each"
        raise _refuse(field, str(roles[next(iter(roles))]), why, "jobs without parameter servers")
    if recipe == _TENSORFLOW and str(job.framework_version or "").split(".")[0] == "1":
        why = "tasks of TensorFlow 1 start again alone"
        raise _refuse(field, str(roles[next(iter(roles))]), why, _recipes())
    if job.task_retries:
        why = f"{field} is set, and tasks of an elastic job start again together"
        raise _refuse("task_retries", job.task_retries, why, "0, or leave it out")
    for number, rule in enumerate(exits.rules):
        if rule.action is ExitAction.RESTART_TASK:
            path = f"restart.rules[{number}].action"
            why = f"{field} is set, and tasks of an elastic job start again together"
            raise _refuse(path, rule.action.value, why, "restart-gang, fail or free")


def _recipes() -> str:
    return "recipe " + ", ".join(name for name in RECIPES if name != "detected")


def _refuse(field: str, value: object, why: str, allowed: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} is {common.format_value(value)}: {why}; allowed is {allowed}",
        field=field,
        value=value,
        allowed=allowed,
    )
