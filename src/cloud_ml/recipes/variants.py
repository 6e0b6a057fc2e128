"""Recipes whose variables depend on the runtime, which is known when the code was looked at."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import replace

from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.gang import Gang, Variant
from cloud_ml.recipes.base import PlanContext, Recipe
from cloud_ml.recipes.planning import Task, check_no_servers, plan_tasks, restarts_of, tasks_of


class VariantRecipe(Recipe):
    """One process for each task, in one of several variants.

    Without ``has_servers``, the framework knows no parameter servers.
    """

    has_servers = True

    def check(self, spec: WorkloadSpec) -> None:
        """Any roles will do, but for parameter servers where there are none."""
        if not self.has_servers:
            check_no_servers(self.name, spec)

    def plan(self, spec: WorkloadSpec, context: PlanContext) -> Gang:
        places = context.places
        tasks = tasks_of(spec, context.ports, places.hosts, places.addresses)
        variants = tuple(
            replace(one, restarts=restarts_of(spec, tasks, one.restarts.tasks))
            for one in self.variants(tasks, context)
        )
        return replace(plan_tasks(spec, context, tasks, {}), variants=variants)

    @abc.abstractmethod
    def variants(self, tasks: Sequence[Task], context: PlanContext) -> tuple[Variant, ...]:
        """The variants; the first that fits the runtime applies.

        Their ``restarts`` name the tasks from whose end the framework can go on.

        Args:
            tasks: All tasks of the gang.
            context: Facts of the attempt, such as the network interface through which they reach
                each other.
        """
