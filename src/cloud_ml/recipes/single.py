"""The recipe of workloads with one process, in any framework: ``python -m module arguments``."""

from __future__ import annotations

from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.gang import Gang
from cloud_ml.recipes.base import PlanContext, Recipe
from cloud_ml.recipes.planning import plan_gang, plan_process


class SingleProcess(Recipe):
    """One process, no peers."""

    name = "single"

    def check(self, spec: WorkloadSpec) -> None:
        """Any spec of one role and one replica will do."""

    def plan(self, spec: WorkloadSpec, context: PlanContext) -> Gang:
        return plan_gang(spec, context, [plan_process(spec, context, spec.roles[0], 0)])
