"""Starts the processes of an attempt, each in its place and within its limits."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.processes import launch
from cloud_ml.engines.local.processes.limits import Limiter
from cloud_ml.engines.local.processes.watched import WatchedTree
from cloud_ml.engines.local.supervisor.attempt import StagedAttempt
from cloud_ml.engines.local.supervisor.running_task import RunningTask, activity_now
from cloud_ml.engines.local.warm_pool.interpreter import NotFit, WarmInterpreter


@dataclass(frozen=True)
class ReadyTask:
    """A process that has its place and its limits. Without a ``prelaunched`` process an interpreter
    waits for it.
    """

    plan: ProcessPlan
    group: Group
    limiter: Limiter
    prelaunched: launch.PrelaunchedProcess | None


class TaskStarter:
    """Starts the processes of an attempt."""

    def __init__(self, attempt: StagedAttempt) -> None:
        self._attempt = attempt

    def make_ready(self, plan: ProcessPlan, number: int) -> ReadyTask:
        """Give a process its limits, and a prelaunched process unless an interpreter waits for it.
        ``number`` is that of its control group.
        """
        attempt = self._attempt
        group = attempt.groups[number] if attempt.groups else WatchedTree()
        limiter = self._limiter(plan, group)
        prelaunched = (
            attempt.stage.prelaunched(group) if self._waiting_interpreter(plan) is None else None
        )
        return ReadyTask(plan, group, limiter, prelaunched)

    def start(self, ready: ReadyTask) -> RunningTask:
        """Start a process that is ready."""
        stage, plan = self._attempt.stage, ready.plan
        launched = self._start_from_interpreter(plan) if ready.prelaunched is None else None
        launched = launched or self._launch(plan, stage.prelaunched(ready.group, ready.prelaunched))
        return self._running(plan, ready.group, launched, ready.limiter)

    def start_in_group_of(self, ended: RunningTask, plan: ProcessPlan) -> RunningTask:
        """Start a process in the group of one that has ended, of which nothing lives."""
        group = ended.group if self._attempt.groups else WatchedTree()
        peak = group.sample().memory_peak_bytes
        limiter = self._used_limiter(plan, group, peak_before=peak)
        launched = self._launch(plan, self._attempt.stage.prelaunched(group))
        return self._running(plan, group, launched, limiter)

    def start_again(self, task: RunningTask) -> None:
        """Start a process that has ended once more, in its group."""
        task.limiter = self._used_limiter(task.plan, task.group)
        prelaunched = self._attempt.stage.prelaunched(task.group)
        if task.recovery is not None:
            task.recovery.note_ready()
        task.launched = self._launch(task.plan, prelaunched)
        task.activity = activity_now(task.limiter)
        task.log_begin = task.log.written

    def _running(
        self, plan: ProcessPlan, group: Group, launched: launch.Launched, limiter: Limiter
    ) -> RunningTask:
        attempt = self._attempt
        observed = ObservedProcess(
            plan.role, plan.index, running=True, started_at=datetime.now(UTC)
        )
        log = attempt.stage.logs.writer(plan.name)
        task = RunningTask(plan, group, launched, log, limiter, observed)
        task.activity = activity_now(limiter)
        task.runs_code = any(plan is one for one in attempt.gang.tasks)
        if task.runs_code:
            attempt.stage.logs.note_code(plan.name, log.written)
        return task

    def _launch(self, plan: ProcessPlan, prelaunched: launch.PrelaunchedProcess) -> launch.Launched:
        stage, staged = self._attempt.stage, self._attempt.staged
        return prelaunched.run(
            stage.buckets.without_removed(staged.view_of(plan)),
            staged.command(plan),
            staged.environment(plan),
            stage.fence.user,
        )

    def _waiting_interpreter(self, plan: ProcessPlan) -> WarmInterpreter | None:
        return self._attempt.stage.waiting_interpreter(self._attempt.staged, plan)

    def _limiter(self, plan: ProcessPlan, group: Group) -> Limiter:
        attempt, used = self._attempt, self._waiting_interpreter(plan) is not None
        first = bool(attempt.groups) and group is attempt.groups[0]
        try:
            return Limiter(
                attempt.config,
                plan,
                attempt.staged.base_memory,
                group,
                attempt.stage.folders.attempt,
                used=used,
                built=attempt.stage.built and first,
            )
        except OSError:
            if not used:
                raise
        attempt.stage.leave_zygote()  # what it imported is more than the job may have
        return self._used_limiter(plan, group)

    def _used_limiter(self, plan: ProcessPlan, group: Group, peak_before: int = 0) -> Limiter:
        """The limits of a process in a group in which others were before."""
        return Limiter(
            self._attempt.config,
            plan,
            self._attempt.staged.base_memory,
            group,
            self._attempt.stage.folders.attempt,
            used=True,
            peak_before=peak_before,
        )

    def _start_from_interpreter(self, plan: ProcessPlan) -> launch.Launched | None:
        """The process, begun by an interpreter that waited for it; ``None`` if it has to start
        the ordinary way.
        """
        attempt, staged = self._attempt, self._attempt.staged
        warm = self._waiting_interpreter(plan)
        if warm is None:
            return None
        try:
            launched = warm.run(attempt.stage.job(staged, plan), staged.completed(plan))
        except NotFit as why:
            print(  # noqa: T201
                f"cloudml: {attempt.gang.key} does not use its interpreter: {why}",
                file=sys.stderr,
                flush=True,
            )
            return None
        attempt.reporter.reach("imported")
        return launched
