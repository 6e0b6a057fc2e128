"""A process of a gang that a supervisor has started, and what it knows of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.hangs import NO_ACTIVITY, Activity, TaskLife
from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.files.task_reports import Version
from cloud_ml.engines.local.logs.merged_log import TaskWriter
from cloud_ml.engines.local.processes import launch, proctree
from cloud_ml.engines.local.processes.limits import Limiter, Verdict
from cloud_ml.engines.local.supervisor.recovery_clock import RecoveryClock

SHELL = ("/bin/sh", "-c")
"""Runs a line of the user's."""
_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.02


class Looks:
    """When to look again whether processes that were killed are gone: soon at first."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_LOOK_S

    def next_at(self) -> float:
        """The time of the next look (monotonic)."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LAST_LOOK_S)
        return time.monotonic() + pause_s

    def begin(self) -> None:
        """Others were killed."""
        self._pause_s = _FIRST_LOOK_S


@dataclass
class RunningTask:
    """A process of the gang that was started.

    Attributes:
        restart_at: When it starts again, if it has ended and may.
        exceeded: Which limit it was killed for.
        hung: From when it was found so to its end.
        reports: The version of what it has reported.
        runs_code: Of the user's. False for a shell line before or after it.
        released: It has handed its control group on to another.
        recovery: The clock of its restart.
        asked_to_restart: By somebody. It has until ``kill_at`` to end.
        sent_signals: What it was sent to end it, since it has started.
        log_begin: Where what it has said begins in its log, if it has started again.
        looks: When to look whether its processes are gone.
    """

    plan: ProcessPlan
    group: Group
    launched: launch.Launched
    log: TaskWriter
    limiter: Limiter
    observed: ObservedProcess
    exit: launch.Exit | None = None
    restart_at: float | None = None
    exceeded: Verdict | None = None
    activity: Activity = NO_ACTIVITY
    hung: bool = False
    reports: Version | None = None
    runs_code: bool = False
    released: bool = False
    recovery: RecoveryClock | None = None
    asked_to_restart: bool = False
    kill_at: float | None = None
    sent_signals: set[int] = field(default_factory=set)
    log_begin: int = 0
    looks: Looks = field(default_factory=Looks)

    @property
    def life(self) -> TaskLife:
        """What the rules of hangs want to know."""
        plan, running = self.plan, self.exit is None
        return TaskLife(plan.name, plan.role, self.activity, running=running, over=self.over)

    @property
    def shell_line(self) -> str:
        """The line of the user's that it runs; empty if it is none."""
        command = self.plan.command
        return command[2] if command[:2] == SHELL else ""

    def main_process(self, *, sandboxed: bool) -> int:
        """The number of the process that runs the command, on this machine."""
        pid = self.launched.pid
        return proctree.main_process(pid, sandboxed=sandboxed) or pid

    @property
    def last_words(self) -> bytes:
        """The end of what it has said since it has started, and nothing of its predecessors."""
        tail = self.log.tail
        return tail[max(0, len(tail) - (self.log.written - self.log_begin)) :]

    @property
    def over(self) -> bool:
        """Whether it has ended, and does not start again."""
        return self.exit is not None and self.restart_at is None


def activity_now(limiter: Limiter) -> Activity:
    """That of a process which starts now."""
    now = time.monotonic()
    return Activity(now, now, limiter.cpu_seconds)
