"""Finds tasks that hang, has them say where, and ends them."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence

from cloud_ml.domain.workloads.hangs import hang_due_at, hung_tasks
from cloud_ml.engines.local.logs.merged_log import write_line
from cloud_ml.engines.local.processes import proctree
from cloud_ml.engines.local.supervisor.running_task import RunningTask
from cloud_ml.engines.local.supervisor.stack_dumps import StackDumps
from cloud_ml.models.common import duration_text


class HangWatch:
    """Knows which tasks hang, and when they are to be killed.

    Args:
        limit_s: How long a task may give no sign of life; ``None``: for ever.
        independent: Whether one task alone can hang. Else a gang hangs as a whole.
        busy_waits: Whether tasks wait for each other in busy loops.
        idle_cores: What a task may use that has nothing to do.
        grace_s: How long a task has to end after SIGABRT.
        stack_dumps: Has processes show their stacks.
        sandboxed: Whether each task has a sandbox.
    """

    def __init__(
        self,
        limit_s: float | None,
        *,
        independent: bool,
        busy_waits: bool,
        idle_cores: float,
        grace_s: float,
        stack_dumps: StackDumps,
        sandboxed: bool,
    ) -> None:
        self._limit_s = limit_s
        self._independent = independent
        self._busy_waits = busy_waits
        self._idle_cores = idle_cores
        self._grace_s = grace_s
        self._stack_dumps = stack_dumps
        self._sandboxed = sandboxed
        self._aborts = False
        self.kill_at: float | None = None

    @property
    def watches(self) -> bool:
        """Whether signs of life are of interest."""
        return self._limit_s is not None

    def idle_cores(self, tasks: Sequence[RunningTask]) -> float:
        """So much processor time is no sign of life. A task in a busy loop may wait or work: once
        one has reported progress, only more of that tells.
        """
        reported = any(task.reports is not None for task in tasks)
        return math.inf if self._busy_waits and reported else self._idle_cores

    def due_at(self, tasks: Sequence[RunningTask]) -> float | None:
        """When to look whether the gang hangs; ``None`` if never, or while some are ended."""
        if self._limit_s is None or any(task.hung and task.exit is None for task in tasks):
            return None
        lives = [task.life for task in tasks]
        return hang_due_at(lives, self._limit_s, independent=self._independent)

    def end_what_hangs(self, tasks: Sequence[RunningTask], now: float) -> None:
        """Have tasks that hang say where, and end them."""
        if self._limit_s is None:
            return
        lives = [task.life for task in tasks]
        names = hung_tasks(lives, self._limit_s, now, independent=self._independent)
        for task in tasks:
            if task.plan.name not in names:
                continue
            task.hung = self._aborts = True
            write_line(task.log, f"cloudml: {self.sentence(task)}")
            self._stack_dumps.ask(
                task.plan.name,
                task.group,
                task.launched.output,
                task.log,
                now=now,
                without=[task.main_process(sandboxed=self._sandboxed)],
            )
        self.abort_when_shown(tasks, now)

    def abort_when_shown(self, tasks: Sequence[RunningTask], now: float) -> None:
        """SIGABRT for tasks that hang, when their other processes have shown their stacks: those
        end with the first one. It shows its own before it ends.
        """
        if not self._aborts or self._stack_dumps.due_at is not None:
            return
        self._aborts = False
        for task in tasks:
            if task.hung and task.exit is None:
                proctree.send(task.main_process(sandboxed=self._sandboxed), signal.SIGABRT)
        self.kill_at = now + self._grace_s

    def sentence(self, task: RunningTask) -> str:
        """What is said of a task that hangs."""
        limit = duration_text(self._limit_s or 0.0)
        return (
            f"Hung: {task.plan.name} gave no sign of life for {limit} (no output, no progress, no "
            "processor time); its stacks are in the log"
        )
