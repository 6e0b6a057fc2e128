"""The contract of a recipe."""

from __future__ import annotations

import abc
from dataclasses import dataclass

from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.engines.base import JobPaths
from cloud_ml.engines.gang import Gang, GangKey, Mount, TrainerSource


@dataclass(frozen=True)
class PlanContext:
    """What a recipe is told beside the spec: who, which attempt, and where things are.

    ``ports`` has those of each task, in their order; none for a workload of one process.
    ``checkpoints`` is the folder for them, and ``restore_from`` the newest one of an earlier
    attempt, both as the processes see them; empty where there is none. ``completed`` has the tasks
    of an array that have completed in earlier attempts.
    """

    key: GangKey
    org: str
    tenant: int
    job_name: str
    places: JobPaths
    mounts: tuple[Mount, ...]
    trainer: TrainerSource | None
    network: str
    ports: tuple[int, ...] = ()
    checkpoints: str = ""
    restore_from: str = ""
    completed: tuple[str, ...] = ()


class Recipe(abc.ABC):
    """How jobs of one framework become processes."""

    name: str

    @abc.abstractmethod
    def check(self, spec: WorkloadSpec) -> None:
        """Refuse at submit what would fail at start.

        Raises:
            InvalidRequest: Names field, value and what is allowed.
        """

    def keeps_ports(self, runtime: str) -> bool:
        """Whether the next attempt can have the ports of the last one.

        The system keeps the connections of processes that have ended, for a minute. Meanwhile only
        those can listen on the same port that set SO_REUSEADDR, as those before them did.

        Args:
            runtime: What the code turned out to need, such as ``pytorch 2.13``; empty if that is
                not known.
        """
        return False

    @abc.abstractmethod
    def plan(self, spec: WorkloadSpec, context: PlanContext) -> Gang:
        """The gang for one attempt."""
