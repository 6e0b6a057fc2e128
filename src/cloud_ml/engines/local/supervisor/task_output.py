"""What tasks write to their pipes, on its way to the log."""

from __future__ import annotations

import os
import time

from cloud_ml.domain.observed import GangState
from cloud_ml.engines.local.supervisor.attempt import StagedAttempt
from cloud_ml.engines.local.supervisor.hang_watch import HangWatch
from cloud_ml.engines.local.supervisor.running_task import RunningTask

FIRST_OUTPUT_S = 0.02
"""That a gang has written its first line is reported so long after it, unless it has ended."""


class TaskOutput:
    """Reads the pipes of an attempt's tasks.

    Args:
        attempt: What the tasks share.
        hangs: Takes output for a sign of life.
    """

    def __init__(self, attempt: StagedAttempt, hangs: HangWatch) -> None:
        self._attempt = attempt
        self._hangs = hangs

    def read(self, task: RunningTask) -> None:
        """Write to the log what has come, and note that the task lives."""
        try:
            data = os.read(task.launched.output, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self._attempt.selector.unregister(task.launched.output)
            return
        task.log.write(data)
        if self._hangs.watches and self._attempt.stack_dumps.due_at is None:
            # Stacks that somebody asked for are no sign of life.
            task.activity = task.activity.spoken(time.monotonic())
        reporter = self._attempt.reporter
        if reporter.report.state is GangState.RUNNING and "output" not in reporter.report.stages:
            reporter.reach("output")
            reporter.publish_within(FIRST_OUTPUT_S)

    def drain(self, task: RunningTask) -> None:
        """Take what the pipe of an ended process still holds."""
        selector = self._attempt.selector
        while task.launched.output in selector.get_map():
            before = task.log.written
            self.read(task)
            # The pipe reaches its end only when all writers have closed it, and a leftover
            # process may still have it open. So stop when it is empty.
            if task.log.written == before:
                break
        if task.launched.output in selector.get_map():
            selector.unregister(task.launched.output)

    def release(self, task: RunningTask) -> None:
        """Close what an ended process held: its log, its pipe, its sockets to the server."""
        if task.released:
            return
        self.drain(task)
        task.log.close()
        task.launched.close()
        # Else others are in the network of this one.
        if self._attempt.stage.network.of_tasks is None:
            self._attempt.listeners.forget(task.plan.name)
        task.released = True
