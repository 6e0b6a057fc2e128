"""Signals to the processes of tasks."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from cloud_ml.engines.local.processes import proctree
from cloud_ml.engines.local.supervisor.running_task import RunningTask


def terminate(task: RunningTask, *, sandboxed: bool) -> None:
    """Ask the process that runs the command of a task to end, if it lives."""
    if task.exit is None and not task.hung:  # it is about to show its stacks
        task.sent_signals.add(signal.SIGTERM)
        proctree.send(task.main_process(sandboxed=sandboxed), signal.SIGTERM)


def kill(tasks: Sequence[RunningTask]) -> None:
    """End tasks at once, with all their processes that are known."""
    for task in tasks:
        if task.exit is None:
            task.sent_signals.add(signal.SIGKILL)
            for pid in {task.launched.pid, *task.group.processes()}:
                proctree.send(pid, signal.SIGKILL)
            task.limiter.kill()
