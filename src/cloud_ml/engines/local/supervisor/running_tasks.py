"""The processes of an attempt that run at the same time, from their start to their end."""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from cloud_ml import failpoints
from cloud_ml.domain.observed import ObservedProcess
from cloud_ml.domain.workloads.gangs import (
    NO_RESTARTS,
    AfterEnd,
    TaskRestarts,
    after_end,
    completed_sentence,
    ended_on_request,
    explain_no_restart,
    next_to_start,
    restart_delay_s,
    too_many_failed,
)
from cloud_ml.domain.workloads.hangs import restarts_after_hang
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.processes import launch, proctree
from cloud_ml.engines.local.processes.limits import Verdict, signal_name
from cloud_ml.engines.local.supervisor import task_signals
from cloud_ml.engines.local.supervisor.attempt import StagedAttempt
from cloud_ml.engines.local.supervisor.end_findings import EndFindings
from cloud_ml.engines.local.supervisor.gang_end import GangEnd, ends_by
from cloud_ml.engines.local.supervisor.gang_stop import GangStop
from cloud_ml.engines.local.supervisor.hang_watch import HangWatch
from cloud_ml.engines.local.supervisor.launcher_failure import out_of_memory_beside
from cloud_ml.engines.local.supervisor.recovery_clock import RecoveryClock
from cloud_ml.engines.local.supervisor.running_task import Looks, RunningTask
from cloud_ml.engines.local.supervisor.task_output import FIRST_OUTPUT_S, TaskOutput
from cloud_ml.engines.local.supervisor.task_restarter import TaskRestarter
from cloud_ml.engines.local.supervisor.task_starter import TaskStarter

_KILL_LIMIT_S = 30.0
_PROGRESS_S = 0.001
"""That a task has ended while others run is told within so many seconds for each task of the gang.
A report names all of them: of a thousand, one a second does. What was not told when a supervisor is
killed runs again.
"""


class RunningTasks:
    """The tasks of a gang, or a shell line of the user's before or after them.

    Args:
        attempt: What they share.
        plans: Those that are to run.
        completes: The tasks whose good end completes the gang; all of them if empty.
        restarts: Which of them start again alone.
        parallel: How many live at once; all of them by default.
        hang_s: How long they may give no sign of life.
        verdict: How the gang has ended, if it has: these run afterwards, and change nothing.
        kill_at: When they are killed.
    """

    def __init__(
        self,
        attempt: StagedAttempt,
        plans: Sequence[ProcessPlan],
        *,
        completes: Sequence[str] = (),
        restarts: TaskRestarts = NO_RESTARTS,
        parallel: int | None = None,
        hang_s: float | None = None,
        verdict: Verdict | None = None,
        kill_at: float | None = None,
    ) -> None:
        self._attempt = attempt
        self._starter = TaskStarter(attempt)
        self._findings = EndFindings(attempt)
        self._plans = plans
        self._completes = completes
        # Without either, nobody could tell whether processes of a task that has ended live on.
        contained = bool(attempt.groups or attempt.sandboxed)
        self._restarts = restarts if contained else replace(restarts, most=0)
        self._parallel = len(plans) if parallel is None else parallel
        self._hangs = HangWatch(
            hang_s,
            independent=attempt.gang.array is not None,
            busy_waits=attempt.gang.busy_waits,
            idle_cores=attempt.gang.idle_cores,
            grace_s=attempt.grace_s,
            stack_dumps=attempt.stack_dumps,
            sandboxed=attempt.sandboxed,
        )
        self._end = GangEnd(several=len(plans) > 1, is_array=attempt.gang.array is not None)
        self._end.verdict = verdict
        self._stop = GangStop(attempt, kill_at)
        self.tasks: list[RunningTask] = []
        self._waiting: list[ProcessPlan] = []
        self._known: dict[str, ObservedProcess] = {}
        self._next_start_at: float | None = None
        self._looks = Looks()
        self._output = TaskOutput(attempt, self._hangs)
        self._restarter = TaskRestarter(
            attempt,
            self._starter,
            self._output,
            attend=self._attend,
            publish=lambda: attempt.reporter.publish(processes=self.observed),
            publish_soon=self._publish_soon,
        )

    @property
    def verdict(self) -> Verdict | None:
        """How the gang has ended, if it has."""
        return self._end.verdict

    @property
    def over(self) -> bool:
        """Whether all have ended, and none starts any more."""
        return not self._waiting and all(task.over for task in self.tasks)

    @property
    def observed(self) -> tuple[ObservedProcess, ...]:
        """All processes, also those that have not started and those that have handed their group
        on.
        """
        known = self._known | {task.plan.name: task.observed for task in self.tasks}
        return tuple(
            known.get(plan.name) or ObservedProcess(plan.role, plan.index, running=False)
            for plan in self._plans
        )

    # ---- starting

    def start(self) -> None:
        """Start the processes that have a place: none of several runs before there is a process for
        each.
        """
        first = min(self._parallel, len(self._plans))
        make_ready = self._starter.make_ready
        ready = [make_ready(plan, number) for number, plan in enumerate(self._plans[:first])]
        self._waiting = list(self._plans[first:])
        failpoints.here("supervisor.start.seats")
        for each in ready:
            self._add(self._starter.start(each))

    def _add(self, task: RunningTask) -> None:
        self.tasks.append(task)
        self._attend(task)

    def _attend(self, task: RunningTask) -> None:
        """From here on, hear what a started process says, and that it ends."""
        selector = self._attempt.selector
        task.group.attach(task.launched.pid)
        selector.register(task.launched.output, selectors.EVENT_READ, (self._output.read, task))
        for end in task.launched.ends:
            selector.register(end, selectors.EVENT_READ, (self._collect, task))
        channel, task.launched.channel = task.launched.channel, None
        if channel is not None:
            self._attempt.listeners.expect(task.plan.name, channel)

    # ---- what is due

    def due_at(self) -> list[float]:
        """When the next things are due, as far as these processes know (monotonic time)."""
        times = [task.limiter.next_look for task in self.tasks if task.exit is None]
        times += [task.restart_at for task in self.tasks if task.restart_at is not None]
        times += [task.kill_at for task in self.tasks if task.kill_at is not None]
        moments = (
            self._hang_due_at(),
            self._hangs.kill_at,
            self._next_start_at,
            self._attempt.stage.checkpoints.renamed.due_at,
        )
        times += self._stop.due_at
        return times + [moment for moment in moments if moment is not None]

    def do_due(self, now: float) -> None:
        """Look at limits and signs of life, and start and end what is due."""
        self._attempt.stage.checkpoints.renamed.resume(now)
        # Samples are taken before it is decided what hangs: what a task did since the last look
        # counts.
        hang_due_at = self._hang_due_at()
        may_hang = hang_due_at is not None and now >= hang_due_at
        for task in self.tasks:
            if task.exit is None and (may_hang or now >= task.limiter.next_look):
                self._look_at(task, now)
        if may_hang:
            self._hangs.end_what_hangs(self.tasks, now)
        for task in self.tasks:
            if task.restart_at is not None and now >= task.restart_at:
                self._restarter.restart(task)
        if self._next_start_at is not None and now >= self._next_start_at:
            self._start_waiting()

    def stop_due(self, now: float) -> None:
        """Tell those to stop whose turn has come, and kill those whose time to end is over."""
        self._stop.do_due(self.tasks, now)
        for task in self.tasks:
            if task.kill_at is not None and now >= task.kill_at:
                task.kill_at = None
                task_signals.kill([task])
        if self._hangs.kill_at is not None and now >= self._hangs.kill_at:
            self._hangs.kill_at = None
            task_signals.kill([task for task in self.tasks if task.hung])

    def dump_stacks(self, names: Sequence[str], now: float) -> None:
        """Have the processes of these tasks show their stacks in the log, one after the other."""
        dumps = self._attempt.stack_dumps
        for task in self.tasks:
            if task.plan.name in names and task.exit is None:
                dumps.ask(task.plan.name, task.group, task.launched.output, task.log, now=now)
        dumps.dump_due(now)
        self._hangs.abort_when_shown(self.tasks, now)

    def _hang_due_at(self) -> float | None:
        return None if self.verdict is not None else self._hangs.due_at(self.tasks)

    def _look_at(self, task: RunningTask, now: float) -> None:
        task.exceeded = task.exceeded or task.limiter.look(now)
        idle_cores = self._hangs.idle_cores(self.tasks)
        used_s = task.limiter.cpu_seconds
        task.activity = task.activity.after_look(now, used_s, idle_cores=idle_cores)
        if self._hangs.watches:
            reports = self._attempt.stage.task_files.report_version(task.plan.name)
            if reports != task.reports:
                task.reports, task.activity = reports, task.activity.spoken(now)
        if task.exceeded is not None:
            task_signals.kill([task])  # what follows for the others is decided when it has ended

    # ---- the end of a process

    def _collect(self, task: RunningTask) -> None:
        """A process has ended: note how, and stop the others if that is the end of the gang."""
        if task.exit is not None:  # both of its ends came at once
            return
        for end in task.launched.ends:
            self._attempt.selector.unregister(end)
        heard_at = time.monotonic()
        ended_at = task.activity.alive_at if task.hung else heard_at
        task.exit = launch.wait(task.launched)
        task.kill_at = None
        self._attempt.stack_dumps.drop(task.plan.name)
        if task.asked_to_restart and self.verdict is None:
            self._collect_for_restart(task)
            return
        # The end of a task is a sign of life of its gang: the others may go on from there.
        task.activity = task.activity.spoken(heard_at)
        verdict = task.exceeded or task.limiter.judge(task.exit, task.plan.name)
        if task.hung and verdict.reason in (Reason.NON_ZERO_EXIT, Reason.SIGNALED):
            verdict = Verdict(Reason.HUNG, self._hangs.sentence(task))
        self._end_if_launcher_of_one_out_of_memory(task, verdict)
        by_server = ends_by(task.exit, task.sent_signals)
        stopped = self._end.stopped(task.plan.name, verdict, by_server=by_server)
        verdict = self._findings.say_why(task, verdict) if stopped is None else stopped
        task.observed = replace(
            task.observed,
            running=False,
            reason=verdict.reason,
            message=verdict.message,
            exit_code=task.exit.code,
            signal=signal_name(task.exit.signal) if task.exit.signal else None,
            finished_at=datetime.now(UTC),
            usage=task.limiter.usage(),
            found_texts=self._findings.texts(task, verdict),
        )
        self._findings.note_patterns(task)
        self._findings.note_progress(task, self._restarts.healthy_s)
        if self.verdict is None:
            self._follow(task, verdict, ended_at)

    def _collect_for_restart(self, task: RunningTask) -> None:
        """A process has ended because somebody wants it to start again: that is no failure."""
        task.observed = ended_on_request(task.observed, datetime.now(UTC))
        if task.runs_code:
            self._findings.note_milestone(task)
        task.restart_at, task.recovery = time.monotonic(), None
        self._publish_soon()

    def _follow(self, task: RunningTask, verdict: Verdict, ended_at: float) -> None:
        """Do what the end of a process asks for."""
        observed, most = self.observed, self._attempt.gang.max_failed
        restarts = self._restarts_after(task)
        follows = after_end(observed, task.observed, self._completes, restarts, most)
        if follows is AfterEnd.RESTART_TASK:
            task.observed = replace(task.observed, restarting=True)
            task.restart_at = time.monotonic() + restart_delay_s(task.observed)
            task.recovery = RecoveryClock(ended_at, task.restart_at)
            self._publish_soon()
            return
        if verdict.reason is not Reason.COMPLETED:
            task.observed = explain_no_restart(observed, task.observed, restarts)
            verdict = replace(verdict, message=task.observed.message)
        if follows is AfterEnd.GO_ON:
            self._next_start_at = time.monotonic() if self._waiting else None
            self._publish_soon()
        else:
            if follows is AfterEnd.COMPLETE_GANG or verdict.reason is Reason.COMPLETED:
                verdict = Verdict(Reason.COMPLETED, completed_sentence(observed))
            else:
                verdict = replace(verdict, message=too_many_failed(verdict.message, most))
            self._end.ended_by = task.plan.name
            self.stop(verdict, grace_s=self._attempt.grace_s)

    def _restarts_after(self, task: RunningTask) -> TaskRestarts:
        """Which tasks start again alone now that this one has ended."""
        if not task.hung or self._attempt.gang.array is not None:
            return self._restarts
        hung = [one.plan.name for one in self.tasks if one.hung]
        return restarts_after_hang(self.observed, hung, self._restarts)

    def _end_if_launcher_of_one_out_of_memory(self, task: RunningTask, verdict: Verdict) -> None:
        """End the gang as the task whose process ran out of memory, if its launcher has failed."""
        if self.verdict is not None:
            return
        cause = out_of_memory_beside(task, verdict, self.tasks, self._attempt.gang.launcher)
        if cause is None:
            return
        other, exceeded = cause
        self._end.ended_by, other.exceeded = other.plan.name, exceeded
        if other.exit is None:
            task_signals.kill([other])
        else:
            other.observed = replace(
                other.observed, reason=exceeded.reason, message=exceeded.message
            )
        self.stop(exceeded, grace_s=self._attempt.grace_s)

    def _publish_soon(self) -> None:
        """Report ends that did not end the gang; of many tasks, some together."""
        reporter = self._attempt.reporter
        reporter.update(processes=self.observed)
        reporter.publish_within(max(FIRST_OUTPUT_S, _PROGRESS_S * len(self._plans)))

    # ---- starting later

    def restart(self, name: str, number: int, grace_s: float) -> None:
        """Have a task end and start again, because somebody wants it to: the restart ``number`` of
        those that were asked for. One that is about to start again does so now.
        """
        task = next((one for one in self.tasks if one.plan.name == name), None)
        if task is None or task.over or not task.runs_code or self.verdict is not None:
            return
        self._restarter.take_request(task, number, grace_s)

    def _start_waiting(self) -> None:
        """Start processes that wait for a place, in groups of which nothing lives any more."""
        self._next_start_at = None
        names = next_to_start(self.observed, self._parallel)
        for plan in [one for one in self._waiting if one.name in names]:
            ended = next((task for task in self.tasks if self._has_empty_group(task)), None)
            if ended is None:
                self._next_start_at = self._looks.next_at()
                return
            self._looks.begin()
            self._start_in_group_of(ended, plan)

    def _has_empty_group(self, task: RunningTask) -> bool:
        """Whether a task is over, and its group is empty and not yet handed on."""
        if task.released or not task.over:
            return False
        task.limiter.kill()
        return launch.is_gone(task.launched) and not task.group.processes()

    def _start_in_group_of(self, ended: RunningTask, plan: ProcessPlan) -> None:
        self._output.release(ended)
        self.tasks.remove(ended)
        self._known[ended.plan.name] = ended.observed
        self._waiting.remove(plan)
        self._add(self._starter.start_in_group_of(ended, plan))
        self._publish_soon()

    # ---- stopping

    def stop(self, verdict: Verdict, grace_s: float, why: str = "") -> None:
        """End every task. Each is told ``why``, else the reason of the verdict."""
        # The first verdict stays: what the stop causes, such as SIGKILL, is not why the gang
        # ended.
        if self.verdict is None:
            self._end.verdict = verdict
        not_started = self._end.of_a_stopped_task().message.replace("stopped", "not started", 1)
        self._known |= {
            plan.name: ObservedProcess(
                plan.role, plan.index, running=False, reason=Reason.CANCELLED, message=not_started
            )
            for plan in self._waiting
        }
        self._waiting, self._next_start_at = [], None
        for task in self.tasks:
            if task.restart_at is not None:
                task.restart_at = None
                task.observed = replace(task.observed, restarting=False)
        self._stop.begin(self.tasks, grace_s, why or verdict.reason)

    def stop_sooner(self, grace_s: float, why: str) -> bool:
        """Leave tasks that stop less time; false if none waits to be killed."""
        return self._stop.shorten(self.tasks, grace_s, why)

    def end_rest(self) -> None:
        """End daemons and grandchildren, and take what they and the pipe still hold."""
        self._stop.end()
        for task in self.tasks:
            if not task.released:
                task.limiter.kill()
        proctree.end_all_descendants(_KILL_LIMIT_S)
        for task in self.tasks:
            self._output.release(task)
        self._attempt.reporter.update(processes=self.observed)
