"""The recipe of LightGBM: the addresses of all processes, which connect to each other.

LightGBM compares the list of machines with the addresses of its own machine, so it wants numbers
and no names. Where an address is known only later, its name stands in the list:
``cloud_ml.job.lightgbm()`` looks it up, and gives all parameters.

Source: https://lightgbm.readthedocs.io/en/stable/Parameters.html#network-parameters
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.engines.gang import Variant
from cloud_ml.recipes.base import PlanContext
from cloud_ml.recipes.planning import Task, those_that_end, workers_of
from cloud_ml.recipes.variants import VariantRecipe

FRAMEWORK = "lightgbm"


class LightGBM(VariantRecipe):
    """One process for each task, each with a port. All of them end well, or none."""

    name = "lightgbm"
    has_servers = False

    def variants(self, tasks: Sequence[Task], context: PlanContext) -> tuple[Variant, ...]:
        return (variant(tasks),)


def variant(tasks: Sequence[Task], framework: str = "", version: str = "") -> Variant:
    """The list of machines, the same in every task."""
    workers = workers_of(tasks)
    machines = ",".join(f"{task.ip or task.host}:{task.port}" for task in workers)
    return Variant(
        framework,
        version,
        {task.name: {"CLOUDML_MACHINES": machines} for task in workers},
        those_that_end(tasks),
    )
