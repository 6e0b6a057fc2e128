"""The phases of a job, the moves between them, and the status that carries them.

What never goes backwards is the pair (attempt, rank of the phase): see ``order``. The lifecycle
page of the documentation is generated from ``MOVES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.workloads.outputs import StoredOutputs


class Phase(StrEnum):
    """Where a job stands. The declaration order is the order within one attempt."""

    SAVED = "Saved"
    QUEUED = "Queued"
    RESTARTING = "Restarting"
    STARTING = "Starting"
    RUNNING = "Running"
    FINISHING = "Finishing"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def terminal(self) -> bool:
        """Whether nothing can follow any more."""
        return self in TERMINAL

    @property
    def active(self) -> bool:
        """Whether the job holds a place on an engine."""
        return self in ACTIVE


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED})
UNFINISHED = tuple(phase.value for phase in Phase if phase not in TERMINAL)
"""The phases in which something may be due."""
ACTIVE = frozenset(
    {Phase.RESTARTING, Phase.STARTING, Phase.RUNNING, Phase.FINISHING, Phase.STOPPING}
)

MOVES: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.SAVED: (Phase.QUEUED, Phase.STOPPED),
    Phase.QUEUED: (Phase.STARTING, Phase.STOPPED),
    Phase.RESTARTING: (Phase.STARTING, Phase.STOPPING),
    Phase.STARTING: (
        Phase.RUNNING,
        Phase.FINISHING,
        Phase.RESTARTING,
        Phase.STOPPING,
        Phase.SUCCEEDED,
        Phase.FAILED,
    ),
    Phase.RUNNING: (
        Phase.FINISHING,
        Phase.RESTARTING,
        Phase.STOPPING,
        Phase.SUCCEEDED,
        Phase.FAILED,
    ),
    Phase.FINISHING: (Phase.RESTARTING, Phase.STOPPING, Phase.SUCCEEDED, Phase.FAILED),
    Phase.STOPPING: (Phase.STOPPED,),
    Phase.SUCCEEDED: (),
    Phase.FAILED: (),
    Phase.STOPPED: (),
}
"""What may follow what. ``RESTARTING`` raises the attempt; every other move keeps it."""

WIRE_STATES: Mapping[Phase, str] = {
    Phase.SAVED: "initial",
    Phase.QUEUED: "enqueued",
    Phase.RESTARTING: "creating",
    Phase.STARTING: "creating",
    Phase.RUNNING: "running",
    Phase.FINISHING: "running",
    Phase.STOPPING: "deleting",
    Phase.SUCCEEDED: "completed",
    Phase.FAILED: "failed",
    Phase.STOPPED: "failed",
}
"""The word of the original wire for each phase."""

_RANK = {phase: rank for rank, phase in enumerate(Phase)}


@dataclass(frozen=True)
class Usage:
    """What a task has used, as sampled by the engine. Memory in bytes, time in seconds."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    processes: int = 0


@dataclass(frozen=True)
class WorkloadStatus:
    """What became of a job so far.

    ``stages`` holds when the current attempt reached each stage (claimed, fetched, resolved,
    installed, environment, started, output, ended), as the engine noted them.
    """

    phase: Phase = Phase.QUEUED
    attempt: int = 1
    reason: str = ""
    message: str = ""
    not_before: datetime | None = None
    queued_at: datetime | None = None
    starting_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    signal: str | None = None
    node: str = ""
    runtime: str = ""
    environment_lock: str = ""
    trainer_digest: str = ""
    stages: Mapping[str, datetime] = field(default_factory=dict)
    usage: Usage = Usage()
    outputs: StoredOutputs | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Never decreases over the life of a job."""
        return (self.attempt, _RANK[self.phase])

    def moved(self, phase: Phase, **changes: object) -> WorkloadStatus:
        """The status after a move to ``phase``.

        Raises:
            ValueError: The table of moves does not allow it.
        """
        if phase not in MOVES[self.phase]:
            raise ValueError(f"a job cannot go from {self.phase} to {phase}")
        return replace(self, phase=phase, **changes)  # type: ignore[arg-type]
