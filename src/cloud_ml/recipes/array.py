"""The recipe of array jobs: many tasks that differ by their index and know no other."""

from __future__ import annotations

from dataclasses import replace

from cloud_ml.domain.workloads.gangs import TaskRestarts
from cloud_ml.domain.workloads.spec import ARRAY, WorkloadSpec
from cloud_ml.engines.gang import ArrayTasks, Gang
from cloud_ml.recipes.base import PlanContext, Recipe
from cloud_ml.recipes.planning import TASK_RETRIES, plan_gang, plan_process

_INDEX = (
    "CLOUDML_ARRAY_INDEX",
    "CLOUDML_INDEX",
    "JOB_COMPLETION_INDEX",
    "SLURM_ARRAY_TASK_ID",
)
"""Variables with the index. The last two have the names of Kubernetes and Slurm, for scripts that
ran there.
"""
_FOLDERS = ("CLOUDML_CHECKPOINT_DIR",)
"""What would be one task's checkpoint is no other's."""


class Array(Recipe):
    """Complete when all tasks have ended. Those that completed in an earlier attempt are left out.

    A task that fails starts again alone, whatever its framework is.
    """

    name = ARRAY

    def check(self, spec: WorkloadSpec) -> None:
        """Any array will do."""

    def plan(self, spec: WorkloadSpec, context: PlanContext) -> Gang:
        (role,) = spec.roles
        done = frozenset(context.completed)
        left = [
            (name, index)
            for name, index in zip(role.tasks, role.indices, strict=True)
            if name not in done
        ]
        names = tuple(name for name, _ in left)
        task_retries = spec.retry.task_retries
        variables = {
            "CLOUDML_ROLE": role.name,
            "CLOUDML_ARRAY_COUNT": str(role.replicas),
            "CLOUDML_TASK_RESTART": "0",
            "SLURM_ARRAY_TASK_COUNT": str(role.replicas),
            "SLURM_ARRAY_TASK_MIN": str(min(role.indices)),
            "SLURM_ARRAY_TASK_MAX": str(max(role.indices)),
        }
        # The newest checkpoint of the job may be another task's.
        own = replace(context, restore_from="")
        gang = plan_gang(spec, own, [plan_process(spec, own, role, 0, variables=variables)])
        return replace(
            gang,
            array=ArrayTasks(tuple(index for _, index in left), _INDEX, _FOLDERS),
            parallel=spec.parallel,
            max_failed=spec.max_failed,
            completes=names,
            restarts=TaskRestarts(
                names,
                TASK_RETRIES if task_retries is None else task_retries,
                spec.retry.exits,
                spec.retry.healthy_s,
            ),
        )
