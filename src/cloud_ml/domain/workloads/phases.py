"""The phases of a job, the moves between them, and the status that carries them.

What never goes backwards is the pair (attempt, rank of the phase): see ``order``. The lifecycle
page of the documentation is generated from ``MOVES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.outputs import StoredOutputs
from cloud_ml.domain.workloads.progress import NO_END, RepeatedEnd
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.recovery import NO_RECOVERIES, Recoveries


class Phase(StrEnum):
    """Where a job stands. The declaration order is the order within one attempt."""

    SAVED = "Saved"
    PAUSED = "Paused"
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
    def runs(self) -> bool:
        """Whether the attempt has started, and nobody wants it to end."""
        return self in (Phase.RUNNING, Phase.FINISHING)

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
    Phase.PAUSED: (Phase.QUEUED, Phase.STOPPED),
    Phase.QUEUED: (Phase.STARTING, Phase.PAUSED, Phase.STOPPED),
    Phase.RESTARTING: (Phase.STARTING, Phase.QUEUED, Phase.PAUSED, Phase.STOPPING),
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
    Phase.STOPPING: (
        Phase.PAUSED,
        Phase.QUEUED,
        Phase.RESTARTING,
        Phase.SUCCEEDED,
        Phase.STOPPED,
    ),
    Phase.SUCCEEDED: (),
    Phase.FAILED: (),
    Phase.STOPPED: (),
}
"""What may follow what. Moves to ``RESTARTING``, and from ``STOPPING`` to ``PAUSED`` and ``QUEUED``,
raise the attempt; every other move keeps it. So attempts count starts, and none is skipped.
"""

WIRE_STATES: Mapping[Phase, str] = {
    Phase.SAVED: "initial",
    Phase.PAUSED: "pending",
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
_RANK |= dict.fromkeys((Phase.PAUSED, Phase.QUEUED, Phase.RESTARTING), _RANK[Phase.QUEUED])
"""A job that waits for its attempt may be paused and resumed again and again."""


@dataclass(frozen=True)
class Usage:
    """What a task has used, as sampled by the engine. Memory in bytes, time in seconds."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    processes: int = 0


@dataclass(frozen=True)
class TaskStatus:
    """A task of a job of several: whether it runs, or how it has ended. ``reason`` is empty before
    its end.

    In this attempt it has started again alone ``restarts`` times, the last time because of
    ``last_end``: that end had ``last_reason``, and ``last_exit_code`` or ``last_signal``. One that is
    ``restarting`` has failed and starts again soon. It runs on the machine ``node``; empty where
    there is only one.
    """

    name: str
    running: bool = False
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    signal: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restarts: int = 0
    last_end: str = ""
    last_reason: str = ""
    last_exit_code: int | None = None
    last_signal: str | None = None
    restarting: bool = False
    node: str = ""

    @property
    def failed(self) -> bool:
        """Whether it has ended badly, and does not start again."""
        return not self.restarting and self.reason not in ("", Reason.COMPLETED)


@dataclass(frozen=True)
class WorkloadStatus:
    """What became of a job so far.

    ``stages`` holds when the current attempt reached each stage (claimed, fetched, resolved,
    installed, environment, started, output, ended), as the engine noted them. A job of several
    tasks has ``tasks``, as of the last change of the phase, and the ``ports`` of all of them, in their
    order. Tasks of an array that have completed are kept over attempts.
    An elastic one has ``world``, the tasks of each role that the current attempt has, or the last
    one while none lives; it was another one before ``resized_at``. While an attempt gives way to a
    larger one, ``next_world`` is what that is to have.
    Attempts have failed ``failures`` times in a row, of which ``retries_used`` count against the
    budget; ``task_restarts_used`` likewise, of tasks that have started again alone in earlier
    attempts. ``last_end`` is that of the last attempt that counts. The last ``port_conflicts`` attempts
    have ended as ``PortTaken``, which is no failure. ``recoveries`` is what all failures have cost, of
    attempts and of tasks. ``memory`` is the limit in bytes for each task of a role that had too
    little before. ``dropped_checkpoints`` are those that are about to be removed, or were
    last: nothing goes on from them.
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
    processor: str = ""
    runtime: str = ""
    environment_lock: str = ""
    trainer_digest: str = ""
    stages: Mapping[str, datetime] = field(default_factory=dict)
    usage: Usage = Usage()
    outputs: StoredOutputs | None = None
    tasks: tuple[TaskStatus, ...] = ()
    ports: tuple[int, ...] = ()
    retries_used: int = 0
    task_restarts_used: int = 0
    failures: int = 0
    last_end: RepeatedEnd = NO_END
    recoveries: Recoveries = NO_RECOVERIES
    world: Mapping[str, int] = field(default_factory=dict)
    next_world: Mapping[str, int] = field(default_factory=dict)
    resized_at: datetime | None = None
    port_conflicts: int = 0
    memory: Mapping[str, int] = field(default_factory=dict)
    dropped_checkpoints: tuple[NotedCheckpoint, ...] = ()

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
