"""The recipe of JAX: what ``jax.distributed.initialize()`` reads.

JAX 0.10 reads the coordinator's address from a variable of its own. The number of processes and its
own number it asks of a cluster that it knows, and the one with the fewest variables is Open MPI. So
a task finds those variables, too, and code may call ``initialize()`` without arguments. The names
``JAX_NUM_PROCESSES`` and ``JAX_PROCESS_ID`` are what Kubeflow sets, for code that passes them on.

Source: https://docs.jax.dev/en/latest/_autosummary/jax.distributed.initialize.html and
``jax/_src/clusters/ompi_cluster.py``
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.engines.gang import Variant
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.planning import Task, those_that_end, workers_of
from cloud_ml.recipes.variants import VariantRecipe

FRAMEWORK = "jax"


class Jax(VariantRecipe):
    """One process for each task. All of them end well, or none."""

    name = "jax"
    has_servers = False

    def keeps_ports(self, runtime: str) -> bool:
        """The coordinator is a server of gRPC, which sets SO_REUSEADDR."""
        return True

    def variants(self, tasks: Sequence[Task], context: PlanContext) -> tuple[Variant, ...]:
        return (variant(tasks),)


def variant(tasks: Sequence[Task], framework: str = "", version: str = "") -> Variant:
    """The variables of each task; the first one coordinates. Keras has names of its own."""
    workers = workers_of(tasks)
    coordinator, size = workers[0].address, str(len(workers))
    return Variant(
        framework,
        version,
        {task.name: _environment(coordinator, size, str(task.rank)) for task in workers},
        those_that_end(tasks),
    )


def _environment(coordinator: str, size: str, rank: str) -> dict[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": coordinator,
        "KERAS_DISTRIBUTION_NUM_PROCESSES": size,
        "KERAS_DISTRIBUTION_PROCESS_ID": rank,
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{coordinator}",
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    }
