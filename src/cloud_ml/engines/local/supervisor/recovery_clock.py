"""How long it takes until a task that has failed runs again."""

from __future__ import annotations

import time

from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.checkpoints import NotedCheckpoint
from cloud_ml.domain.workloads.recovery import Recovery, lost_work_s

_DIGITS = 4


class RecoveryClock:
    """The clock of one recovery, which begins with the end of a task. Times are monotonic.

    Args:
        ended_at: When the end was heard of; of a task that hung, its last sign of life.
        due_at: When it may start again.
    """

    def __init__(self, ended_at: float, due_at: float) -> None:
        self._ended_at = ended_at
        self._due_at = due_at
        self._decided_at = time.monotonic()
        self._gone_at = self._ready_at = self._decided_at

    def note_gone(self) -> None:
        """Nothing of the task lives any more."""
        self._gone_at = self._ready_at = time.monotonic()

    def note_ready(self) -> None:
        """The place of its next process is ready."""
        self._ready_at = time.monotonic()

    def recovery(self, ended: ObservedProcess, checkpoint: NotedCheckpoint | None) -> Recovery:
        """What the end of a task has cost that runs again."""
        now = time.monotonic()
        stages = {
            "detect": self._decided_at - self._ended_at,
            "end": max(0.0, self._gone_at - max(self._due_at, self._decided_at)),
            "stage": self._ready_at - self._gone_at,
            "start": now - self._ready_at,
        }
        lost_s = lost_work_s(ended.started_at, ended.finished_at, checkpoint)
        return Recovery(
            ended.role,
            str(ended.reason),
            round(now - self._ended_at, _DIGITS),
            None if lost_s is None else round(lost_s, _DIGITS),
            {name: round(seconds, _DIGITS) for name, seconds in stages.items()},
        )
