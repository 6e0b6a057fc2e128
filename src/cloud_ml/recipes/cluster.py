"""The recipe of tasks that arrange themselves: they get each other's names and ports."""

from __future__ import annotations

from dataclasses import replace

from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.gang import Gang
from cloud_ml.recipes.base import PlanContext, Recipe
from cloud_ml.recipes.planning import (
    chief_of,
    plan_tasks,
    restarts_of,
    tasks_of,
    those_that_end,
)


class Cluster(Recipe):
    """Any roles. Complete when the chief has ended, or without one when all have.

    Parameter servers and evaluators are not waited for.
    """

    name = "cluster"

    def check(self, spec: WorkloadSpec) -> None:
        """Any roles will do."""

    def plan(self, spec: WorkloadSpec, context: PlanContext) -> Gang:
        tasks = tasks_of(spec, context.ports, context.places.hosts)
        chief = chief_of(tasks)
        completes = (chief.name,) if chief else those_that_end(tasks)
        return replace(
            plan_tasks(spec, context, tasks, {}),
            completes=completes,
            restarts=restarts_of(spec, tasks, ()),
        )
