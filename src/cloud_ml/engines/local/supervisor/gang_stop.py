"""The stop of a gang: notices, SIGTERM by turns, and SIGKILL when the grace time is over."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cloud_ml.engines.local.supervisor import task_signals
from cloud_ml.engines.local.supervisor.attempt import StagedAttempt
from cloud_ml.engines.local.supervisor.running_task import RunningTask
from cloud_ml.engines.local.supervisor.stop_order import StopOrder


class GangStop:
    """Ends the tasks of a gang. Times are monotonic.

    Args:
        attempt: What the tasks share.
        kill_at: When they are killed, if that is known before they start.
    """

    def __init__(self, attempt: StagedAttempt, kill_at: float | None) -> None:
        self._attempt = attempt
        self._kill_at = kill_at
        self._order = StopOrder(attempt.gang.stopped_last)

    @property
    def due_at(self) -> list[float]:
        """When the next tasks are terminated or killed."""
        return [moment for moment in (self._kill_at, self._order.due_at) if moment is not None]

    def begin(self, tasks: Sequence[RunningTask], grace_s: float, why: str) -> None:
        """Stop the tasks, which are told ``why``. A kill that is due sooner stays due."""
        now = time.monotonic()
        kill_at = now + grace_s
        self._kill_at = min(self._kill_at, kill_at) if self._kill_at is not None else kill_at
        if grace_s > 0:
            self._leave_notices(tasks, why, grace_s)
            self._order.begin(self._kill_at, grace_s)
            self._terminate_next(tasks, now)

    def shorten(self, tasks: Sequence[RunningTask], grace_s: float, why: str) -> bool:
        """Leave tasks that stop less time; false if none waits to be killed."""
        if self._kill_at is None:
            return False
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)
        self._order.shorten(self._kill_at, grace_s)
        self._leave_notices(tasks, why, grace_s)
        return True

    def do_due(self, tasks: Sequence[RunningTask], now: float) -> None:
        """Terminate the tasks whose turn has come, and kill all when the grace time is over."""
        self._terminate_next(tasks, now)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            task_signals.kill(tasks)

    def end(self) -> None:
        """Kill nothing more: every task has ended."""
        self._kill_at = None

    def _terminate_next(self, tasks: Sequence[RunningTask], now: float) -> None:
        living = {task.plan.name: task for task in tasks if task.exit is None}
        for name in self._order.take([*living], now):
            task_signals.terminate(living[name], sandboxed=self._attempt.sandboxed)

    def _leave_notices(self, tasks: Sequence[RunningTask], why: str, grace_s: float) -> None:
        for task in tasks:
            if task.exit is None:
                self._attempt.stage.task_files.leave_notice(task.plan.name, why, grace_s)
