"""The recipe of PyTorch: the variables of ``torch.distributed`` and of ``torchrun``.

Source: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.gang import Gang, ProcessPlan, Variant
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.planning import Task, those_that_end, workers_of
from cloud_ml.recipes.variants import VariantRecipe

FRAMEWORK = "pytorch"


class PyTorch(VariantRecipe):
    """One process for each task; every worker has a rank. All of them end well, or none.

    With more processes for each task, ``torchrun`` starts them there and gives them their ranks.
    """

    name = "pytorch"
    has_servers = False

    def plan(self, spec: WorkloadSpec, context: PlanContext) -> Gang:
        gang = super().plan(spec, context)
        if spec.procs_per_task == 1:
            return gang
        (only,) = gang.variants
        count = {"PET_NPROC_PER_NODE": str(spec.procs_per_task)}
        environments = {
            name: {**variables, **count} for name, variables in only.environments.items()
        }
        return replace(
            gang,
            processes=tuple(
                _under_torchrun(one) if one.name in environments else one for one in gang.processes
            ),
            variants=(replace(only, environments=environments),),
        )

    def keeps_ports(self, runtime: str) -> bool:
        """``TCPStore`` sets SO_REUSEADDR."""
        return True

    def variants(self, tasks: Sequence[Task], context: PlanContext) -> tuple[Variant, ...]:
        return (variant(tasks, context),)


def variant(
    tasks: Sequence[Task], context: PlanContext, framework: str = "", version: str = ""
) -> Variant:
    """The variables of each task. Those that begin with ``PET_`` are for a ``torchrun`` inside."""
    workers = workers_of(tasks)
    first, size = workers[0], len(workers)
    return Variant(
        framework,
        version,
        {task.name: _environment(task, first, size, context) for task in workers},
        those_that_end(tasks),
    )


def _under_torchrun(process: ProcessPlan) -> ProcessPlan:
    python, *module = process.command
    return replace(process, command=(python, "-m", "torch.distributed.run", *module))


def _environment(task: Task, first: Task, size: int, context: PlanContext) -> dict[str, str]:
    rank, interface = str(task.rank), context.places.interface
    return {
        "MASTER_ADDR": first.host,
        "MASTER_PORT": str(first.port),
        "RANK": rank,
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": rank,
        "GROUP_WORLD_SIZE": str(size),
        # Never TORCHELASTIC_USE_AGENT_STORE: rank 0 would not make the store, as torchrun has.
        "TORCHELASTIC_RUN_ID": context.key.job_uid,
        "TORCHELASTIC_RESTART_COUNT": str(context.key.attempt - 1),
        "PET_NNODES": str(size),
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": first.host,
        "PET_MASTER_PORT": str(first.port),
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
    }
