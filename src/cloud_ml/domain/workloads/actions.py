"""What the controller does for a train job whose status stands as committed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EnsureGang:
    """Start this attempt unless it was started or stopped before."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopGang:
    """End this attempt, politely for ``grace_s`` seconds, and never let it start again."""

    attempt: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what the engine keeps of the record (logs, folders), then the record itself."""


WorkloadAction = EnsureGang | StopGang | Forget
