"""What the controller does for a train job whose status stands as committed."""

from __future__ import annotations

from dataclasses import dataclass

from cloud_ml.domain.workloads.reasons import Reason


@dataclass(frozen=True, slots=True)
class EnsureGang:
    """Start this attempt unless it was started or stopped before."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopGang:
    """End this attempt, politely for ``grace_s`` seconds, and never let it start again.

    Its tasks are told ``why``.
    """

    attempt: int
    grace_s: float
    why: Reason = Reason.CANCELLED


@dataclass(frozen=True, slots=True)
class RestartTask:
    """End a task of this attempt and start it again alone, unless ``number`` of its restarts were
    asked for and done. It has ``grace_s`` seconds to end.
    """

    attempt: int
    task: str
    number: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what the engine keeps of the record (logs, folders), then the record itself."""


WorkloadAction = EnsureGang | StopGang | RestartTask | Forget
