"""The recipe of XGBoost: where the tracker is, through which the processes find each other.

XGBoost 3 reads no variables. The code hands these to ``RabitTracker`` in the first process, and to
``CommunicatorContext`` in all. The names are those that Kubeflow sets.

Source: https://xgboost.readthedocs.io/en/stable/python/python_api.html#module-xgboost.collective
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.engines.gang import Variant
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.planning import Task, those_that_end, workers_of
from cloud_ml.recipes.variants import VariantRecipe

FRAMEWORK = "xgboost"


class XGBoost(VariantRecipe):
    """One process for each task. All of them end well, or none."""

    name = "xgboost"
    has_servers = False

    def variants(self, tasks: Sequence[Task], context: PlanContext) -> tuple[Variant, ...]:
        return (variant(tasks),)


def variant(tasks: Sequence[Task], framework: str = "", version: str = "") -> Variant:
    """The variables of each task. The tracker has the port of the first: workers need none."""
    workers = workers_of(tasks)
    first, size = workers[0], str(len(workers))
    return Variant(
        framework,
        version,
        {task.name: _environment(task, first, size) for task in workers},
        those_that_end(tasks),
    )


def _environment(task: Task, first: Task, size: str) -> dict[str, str]:
    return {
        "DMLC_TRACKER_URI": first.host,
        "DMLC_TRACKER_PORT": str(first.port),
        "DMLC_TASK_ID": str(task.rank),
        "DMLC_NUM_WORKER": size,
    }
