"""Whether the tasks of a gang hang: they give no sign of life for too long. Pure.

Signs of life are output, progress that was reported, and processor time. Times are in seconds of
any clock that does not jump.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.gangs import (
    EVALUATOR,
    NO_RESTARTS,
    TaskRestarts,
    may_start_again,
)
from cloud_ml.domain.workloads.reasons import Reason

IDLE_CORES = 0.01
"""A process that uses less is idle: threads that only look whether there is something to do."""
_LEAST_USED_S = 0.02
"""Less is not told from nothing where time is counted in ticks."""
_SHORTEST_LOOK_S = 1.0
_PARAMETER_SERVER = "ps"
PATIENT_ROLES = frozenset({_PARAMETER_SERVER, EVALUATOR})
"""Their tasks sleep until somebody wants something of them, for ever if need be."""


@dataclass(frozen=True)
class Activity:
    """What is known of a task: when it gave its last sign of life, and what processor time it had
    used at ``looked_at``.
    """

    alive_at: float
    looked_at: float
    cpu_seconds: float = 0.0

    def spoken(self, now: float) -> Activity:
        """It has said something."""
        return replace(self, alive_at=now)

    def after_look(
        self, now: float, cpu_seconds: float, *, idle_cores: float = IDLE_CORES
    ) -> Activity:
        """It has used so much processor time in all. Less than ``idle_cores`` is no sign of life."""
        elapsed, used = now - self.looked_at, cpu_seconds - self.cpu_seconds
        if used >= max(idle_cores * elapsed, _LEAST_USED_S):
            return Activity(now, now, cpu_seconds)
        if elapsed < _SHORTEST_LOOK_S:  # too short to tell
            return self
        return replace(self, looked_at=now, cpu_seconds=cpu_seconds)


NO_ACTIVITY = Activity(0.0, 0.0)


@dataclass(frozen=True)
class TaskLife:
    """A task as it is now: it runs, or it is ``over`` for good, or it waits for its restart."""

    name: str
    role: str
    activity: Activity
    running: bool = True
    over: bool = False


def hang_due_at(
    tasks: Sequence[TaskLife], timeout_s: float, *, independent: bool = False
) -> float | None:
    """When the gang hangs unless a task gives a sign of life; ``None`` if it cannot.

    Of ``independent`` tasks, which wait for no other, each hangs for itself.
    The end of a task is its last sign of life: others may go on from there.
    """
    awaited = _select_watched(tasks)
    if independent:
        times = [one.activity.alive_at for one in awaited if one.running]
        return min(times) + timeout_s if times else None
    if not awaited or not all(one.running for one in awaited):
        return None
    counted = [one for one in tasks if one.role not in PATIENT_ROLES]
    return max(one.activity.alive_at for one in counted) + timeout_s


def hung_tasks(
    tasks: Sequence[TaskLife], timeout_s: float, now: float, *, independent: bool = False
) -> tuple[str, ...]:
    """The tasks that hang: all that are awaited, or none. Of ``independent`` tasks it may be some.

    A task without a sign of life may wait for another one, which works.
    """
    if independent:
        running = [one for one in _select_watched(tasks) if one.running]
        return tuple(one.name for one in running if now >= one.activity.alive_at + timeout_s)
    due_at = hang_due_at(tasks, timeout_s)
    if due_at is None or now < due_at:
        return ()
    return tuple(one.name for one in _select_watched(tasks))


def restarts_after_hang(
    processes: Sequence[ObservedProcess], hung: Collection[str], restarts: TaskRestarts
) -> TaskRestarts:
    """Which tasks start again alone after those that are ``hung`` have hung together.

    All of them do, or none: whoever starts again alone would wait for the others. None does where
    there is a parameter server, which may be the one that all of them wait for.
    """
    ends = [replace(one, reason=Reason.HUNG) for one in processes if one.name in hung]
    served = any(one.role == _PARAMETER_SERVER for one in processes)
    if served or not all(may_start_again(end, restarts) for end in ends):
        return NO_RESTARTS
    return restarts


def _select_watched(tasks: Sequence[TaskLife]) -> list[TaskLife]:
    return [one for one in tasks if not one.over and one.role not in PATIENT_ROLES]
