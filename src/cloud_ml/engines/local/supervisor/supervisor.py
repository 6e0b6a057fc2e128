"""One supervisor per gang: stages, starts, watches, reports, and leaves nothing behind.

A child of the spawner that outlives the server. It holds the gang's claim, is the parent (and
subreaper) of everything the gang starts, and publishes what it finds in the ledger. When it is
killed, the kernel kills the gang's processes with it.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from cloud_ml import failpoints, linux
from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.gangs import completed_sentence
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import ProcessPlan
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.disk.project_ids import ProjectLimit
from cloud_ml.engines.local.disk.shares import DiskShares
from cloud_ml.engines.local.disk.watch import DiskWatch
from cloud_ml.engines.local.failures.explain import FailureContext
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.network import JOB_PORT, TENANT
from cloud_ml.engines.local.network.listener_store import ListenerStore, OfferName
from cloud_ml.engines.local.network.port_check import taken_port
from cloud_ml.engines.local.processes import proctree
from cloud_ml.engines.local.processes.limits import Verdict
from cloud_ml.engines.local.resolved_gang import ResolvedGang
from cloud_ml.engines.local.supervisor.attempt import StagedAttempt
from cloud_ml.engines.local.supervisor.attempt_folders import WRITABLE
from cloud_ml.engines.local.supervisor.reporting import Reporter
from cloud_ml.engines.local.supervisor.running_task import SHELL
from cloud_ml.engines.local.supervisor.running_tasks import RunningTasks
from cloud_ml.engines.local.supervisor.signals import SignalListener, StopRequested
from cloud_ml.engines.local.supervisor.stack_dumps import StackDumps
from cloud_ml.engines.local.supervisor.stage import Stage
from cloud_ml.engines.local.supervisor.staged import Ahead, Staged
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.removing import remove

_KILL_LIMIT_S = 30.0
_UNLIMITED = 1 << 62
_MOST_NOTICES, _LONGEST_NOTICE = 10, 500
"""What a report holds of the notices about an environment; the log has all of them."""
_RUNNING_S = 0.1
"""That a gang runs is told so long after its start, unless it has ended: for one that ends at once,
one report does.
"""
_BATCH_S = 0.5
"""So long events are handled before requests and limits are looked at."""
_CLOSING_S, _PORT_LOOK_S = 65.0, 0.2
"""The system keeps connections of processes that have ended for 60 s."""


class Supervisor:
    """Runs one gang from the claim to the last report."""

    def __init__(
        self,
        gang: ResolvedGang,
        config: LocalConfig,
        ledger: Ledger,
        groups: Sequence[Group],
        ahead: Ahead,
    ) -> None:
        self._gang = gang
        self._config = config
        self._ledger = ledger
        self._groups = list(groups)
        report = ObservedGang(
            gang.key.job_uid,
            gang.key.attempt,
            GangState.STAGING,
            node=config.node,
            processor=config.processor,
        )
        self._reporter = Reporter(ledger, report)
        self._ahead = ahead
        self._disk = DiskWatch(
            [
                ledger.work_folder(gang.key.job_uid),
                *(ledger.attempt_folder(gang.key) / name for name in WRITABLE),
            ],
            limit=gang.disk_bytes or config.default_disk_bytes or None,
            reserve=config.disk_reserve_bytes,
            period_s=config.disk_period_s,
            files=config.max_files,
            shares=DiskShares(ledger.disk_shares, str(gang.key), gang.tenant),
        )
        self._disk_limit: ProjectLimit | None = None
        self._grace_s = config.stop_grace_s if gang.grace_s is None else gang.grace_s
        self._stop_grace_s = float("inf")
        self._deadline: float | None = None
        self._stack_dumps = StackDumps()
        self._selector = selectors.DefaultSelector()
        self._stage: Stage | None = None
        self._running: RunningTasks | None = None

    def run(self) -> bool:
        """Supervise to the end. Returns without a trace if the gang was claimed or stopped before.

        True when all went the usual way, so that this process has nothing left of the gang and may
        serve another.
        """
        failpoints.here("supervisor.claim.before")
        # Claim first: nothing of the attempt exists before, so a supervisor that loses the claim
        # leaves no trace.
        if not self._ledger.claim(self._gang.key, [group.name for group in self._groups]):
            return False
        failpoints.here("supervisor.claim.after")
        # Do this before starting anything, so that orphans of the gang are reparented to this
        # process and not to the spawner.
        linux.become_subreaper()
        self._signals = SignalListener(
            self._selector,
            self._reporter,
            lambda: self._ledger.stop_requested(self._gang.key) is not None,
            hears_ends=not self._config.bwrap,  # orphans of the job are buried when they die
        )
        self._reporter.reach("claimed")
        stage = self._stage = Stage(
            self._gang, self._config, self._ledger, self._groups, self._ahead
        )
        self._listeners = ListenerStore(
            self._selector,
            self._ledger.listeners,
            OfferName.of_attempt(self._gang.tenant, self._gang.key.job_uid, self._gang.key.attempt),
            JOB_PORT,
            stage.logs.write,
        )
        try:
            stage.make_folders()
            self._disk_limit = stage.bind_to_limit()
            stage.checkpoints.watch(self._selector, stage.logs.write)
            failpoints.here("supervisor.stage.before")
            self._run_staged(stage)
        except StopRequested:
            self._end(Verdict(Reason.CANCELLED, "stopped while it was starting"))
        except EnvironmentFailed as failure:
            stage.logs.write(f"cloudml: {failure.message}\n".encode())
            self._end(Verdict(Reason(failure.reason), failure.message))
        except OSError as error:
            stage.logs.write(f"cloudml: the attempt cannot be started: {error}\n".encode())
            self._end(Verdict(Reason.START_FAILED, f"the attempt cannot be started: {error}"))
        else:
            return True
        finally:
            # The handlers of signals go last: a late request to stop must not end this process
            # while it cleans up.
            self._disk.close()
            self._listeners.close()
            stage.clean_up()
            failpoints.here("supervisor.clean.after")
            self._signals.close()
            self._selector.close()
        return False

    def _run_staged(self, stage: Stage) -> None:
        # A request may have arrived after the claim and before its signal handler was installed.
        self._stop_if_requested()
        self._check_kept_disk()
        staged = stage.prepare(self._reporter.reach)
        # No signal raises from here on. A request that came meanwhile is found below.
        self._reporter.staging = False
        self._reporter.reach("environment")
        failpoints.here("supervisor.stage.after")
        self._reporter.update(
            runtime=staged.runtime,
            environment_lock=staged.lock,
            trainer_digest=staged.trainer_digest,
            notices=tuple(notice[:_LONGEST_NOTICE] for notice in staged.notices[:_MOST_NOTICES]),
        )
        self._stop_if_requested()
        gang = self._gang.for_runtime(staged.runtime)
        if gang is None:
            raise EnvironmentFailed(
                Reason.NO_DISTRIBUTED_RECIPE, self._gang.recipe_refusal(staged.runtime)
            )
        self._gang = gang
        self._check_ports(stage)
        if gang.wall_time_s:
            self._deadline = time.monotonic() + gang.wall_time_s
        attempt = self._attempt(stage, staged)
        if gang.prepare_command:
            prepared = self._run_line(attempt, gang.prepare_command)
            if prepared.reason is not Reason.COMPLETED:
                self._end(_of_line(prepared, Reason.PREPARE_FAILED, "the prepare command"))
                return
        failpoints.here("supervisor.start.before")
        verdict = self._run_tasks(attempt)
        if gang.finish_command and verdict.reason is Reason.COMPLETED:
            verdict = self._finish(attempt, gang.finish_command)
        elif gang.finish_command and gang.serves and self._left_on_signal(verdict):
            self._take_leave(attempt, gang.finish_command, verdict)
        self._end(verdict)

    def _attempt(self, stage: Stage, staged: Staged) -> StagedAttempt:
        return StagedAttempt(
            gang=self._gang,
            config=self._config,
            ledger=self._ledger,
            groups=self._groups,
            stage=stage,
            staged=staged,
            reporter=self._reporter,
            selector=self._selector,
            listeners=self._listeners,
            failure_context=FailureContext(
                folders=staged.code_folders,
                working_folder=staged.view.folder,
                own_network=self._gang.network == TENANT,
            ),
            disk_limit=self._disk_limit,
            stack_dumps=self._stack_dumps,
            grace_s=self._grace_s,
        )

    def _check_kept_disk(self) -> None:
        """Refuse a job whose organisation keeps too much of earlier ones. What serves callers is
        never refused.
        """
        gang = self._gang
        if gang.serves:
            return
        allowance = gang.disk_bytes or self._config.default_disk_bytes or _UNLIMITED
        excess = self._ledger.kept_disk.excess(
            gang.tenant, gang.key.job_uid, self._config.kept_disk_bytes, allowance=allowance
        )
        if excess:
            raise EnvironmentFailed(Reason.DISK_QUOTA, f"DiskQuotaExceeded: {excess}")

    def _check_ports(self, stage: Stage) -> None:
        """Refuse ports that somebody else has: another program of the machine, or another job of
        the organisation. Wait for those from which the system is about to drop connections.
        """
        owners = {port: plan.name for plan in self._gang.processes for port in plan.ports}
        last_look, logged = time.monotonic() + _CLOSING_S, False
        while owners and (taken := taken_port([*owners], stage.network.of_tasks)) is not None:
            sentence = f"port {taken.number} of {owners[taken.number]} {taken.why}"
            if not taken.closing or time.monotonic() >= last_look:
                raise EnvironmentFailed(Reason.PORT_TAKEN, f"PortTaken: {sentence}")
            if not logged:
                stage.logs.write(f"cloudml: {sentence}; waiting for a minute at most\n".encode())
                logged = True
            self._pause(_PORT_LOOK_S)

    def _pause(self, seconds: float) -> None:
        """Wait before any process runs, unless the attempt is stopped meanwhile."""
        for key, _ in self._selector.select(seconds):
            handle, argument = key.data
            handle(argument)
        self._stop_if_requested()
        self._reporter.publish_due(time.monotonic())

    # ---- running

    def _run_tasks(self, attempt: StagedAttempt) -> Verdict:
        """Run the tasks of the gang to their end."""
        gang = attempt.gang
        running = self._start(
            RunningTasks(
                attempt,
                gang.tasks,
                completes=gang.completes,
                restarts=gang.restarts,
                parallel=gang.parallel,
                hang_s=gang.hang_s,
            )
        )
        failpoints.here("supervisor.start.after")
        self._reporter.reach("started")
        self._reporter.update(state=GangState.RUNNING, processes=running.observed)
        self._reporter.publish_within(_RUNNING_S)
        return self._watch(running)

    def _run_line(self, attempt: StagedAttempt, line: str) -> Verdict:
        """Run a shell line of the user's with the first process's limits and log, to its end."""
        return self._watch(self._start(RunningTasks(attempt, [_shell_plan(attempt, line)])))

    def _finish(self, attempt: StagedAttempt, line: str) -> Verdict:
        """Run the finish command of what has completed."""
        processes = self._note_end_of_code(attempt)
        self._reporter.publish(state=GangState.FINISHING)
        verdict = self._run_line(attempt, line)
        self._reporter.update(processes=processes)
        return _of_line(verdict, Reason.FINISH_FAILED, "the finish command")

    def _left_on_signal(self, verdict: Verdict) -> bool:
        """Whether it was stopped and went by itself, as what serves does in the end."""
        running = self._running
        return (
            verdict.reason is Reason.CANCELLED
            and running is not None
            and all(
                task.exit is not None and task.exit.signal != signal.SIGKILL
                for task in running.tasks
            )
        )

    def _take_leave(self, attempt: StagedAttempt, line: str, verdict: Verdict) -> None:
        """Run the finish command of what was stopped, for as long as the stop granted. What it
        says is in the log.
        """
        processes = self._note_end_of_code(attempt)
        granted_s = self._ledger.stop_requested(self._gang.key) or 0.0
        kill_at = time.monotonic() + granted_s
        plan = _shell_plan(attempt, line)
        self._watch(self._start(RunningTasks(attempt, [plan], verdict=verdict, kill_at=kill_at)))
        self._reporter.update(processes=processes)

    def _note_end_of_code(self, attempt: StagedAttempt) -> Sequence[ObservedProcess]:
        """Note where the output of the code ends. Returns its processes: a shell line that runs
        after them takes their place in the report.
        """
        name = attempt.gang.first.name
        attempt.stage.logs.note_code(name, attempt.stage.logs.written(name))
        return self._reporter.report.processes

    def _start(self, running: RunningTasks) -> RunningTasks:
        self._running = running
        running.start()
        return running

    # ---- watching

    def _watch(self, running: RunningTasks) -> Verdict:
        """Wait until every process has ended, keeping limits and requests to stop."""
        while not running.over:
            self._handle_events(self._seconds_to_wait(running))
            self._stop_if_requested()
            self._fulfil_requests(running)
            self._keep_limits(running)
        running.end_rest()
        return running.verdict or Verdict(Reason.COMPLETED, completed_sentence(()))

    def _handle_events(self, timeout_s: float) -> None:
        """Handle what has come, or what comes first within that time. What would keep requests and
        limits waiting is left for the next time: looking for patterns in the output of a task that
        has failed may take seconds, and a thousand may have failed at once.
        """
        events = self._selector.select(timeout_s)
        late = time.monotonic() + _BATCH_S
        for key, _ in events:
            handle, argument = key.data
            handle(argument)
            if time.monotonic() >= late:
                return

    def _seconds_to_wait(self, running: RunningTasks) -> float:
        now = time.monotonic()
        moments = (self._deadline, self._reporter.due_at, self._stack_dumps.due_at)
        times = [*running.due_at(), *(moment for moment in moments if moment is not None)]
        # Look every five seconds: the sender of a request may have died before it sent the
        # signal.
        return max(0.0, min([*times, self._disk.next_look, now + 5.0]) - now)

    def _keep_limits(self, running: RunningTasks) -> None:
        now = time.monotonic()
        if not self._config.bwrap:  # in the sandbox its first process does that
            proctree.bury_orphans({task.launched.pid for task in running.tasks})
        self._reporter.publish_due(now)
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            limit = self._gang.wall_time_s
            running.stop(
                Verdict(Reason.TIME_LIMIT, f"TimeLimitExceeded: the limit of {limit} s is over"),
                grace_s=self._grace_s,
            )
        running.do_due(now)
        if now >= self._disk.next_look:
            verdict = self._disk.look(lambda: proctree.descendants(os.getpid()))
            if verdict is None and self._disk_limit is not None:
                verdict = self._disk_limit.verdict()
            if verdict is not None:
                running.stop(verdict, grace_s=0.0)
        running.stop_due(now)

    # ---- requests

    def _stop_if_requested(self) -> None:
        grace_s = self._ledger.stop_requested(self._gang.key)
        if grace_s is None:
            return
        running = self._running
        if running is None:
            raise StopRequested
        if running.over:
            return
        why = self._ledger.stop_reason(self._gang.key)
        if running.verdict is None:
            running.stop(Verdict(Reason.CANCELLED, "stopped on request"), grace_s, why)
            self._stop_grace_s = grace_s
        elif grace_s < self._stop_grace_s and running.stop_sooner(grace_s, why):  # asked again
            self._stop_grace_s = grace_s

    def _fulfil_requests(self, running: RunningTasks) -> None:
        """Start tasks again that somebody wants to start again, and ask for the stacks of those
        whose stacks somebody asks to see.
        """
        names: Sequence[str] = ()
        if self._signals.take_signal():
            key, known = self._gang.key, [task.plan.name for task in running.tasks]
            for task, number, grace_s in self._ledger.take_restart_requests(key, known):
                running.restart(task, number, grace_s)
            names = self._ledger.take_stack_requests(key, known)
        running.dump_stacks(names, time.monotonic())

    # ---- the end

    def _end(self, verdict: Verdict) -> None:
        self._reporter.staging = False
        # Also kill by descent, because there may be no control groups.
        for group in self._groups:
            group.kill()
        proctree.end_all_descendants(_KILL_LIMIT_S)
        if self._stage is not None and self._running is not None and self._running.tasks:
            self._reporter.update(
                # Do this after the last process has ended, when the files no longer change.
                unsaved_files=self._stage.find_unsaved_files(),
                checkpoint=self._stage.checkpoints.newest(),
            )
        # A replica that was stopped does not come again; the room of a gang that gave way is what
        # others wait for.
        stopped = self._gang.serves and verdict.reason is Reason.CANCELLED
        if stopped or self._disk.gave_way:
            remove(self._ledger.work_folder(self._gang.key.job_uid))
        if not self._gang.serves:
            self._ledger.kept_disk.note(self._gang.tenant, self._gang.key.job_uid, self._disk.size)
        self._reporter.reach("ended")
        failpoints.here("supervisor.end.before")
        self._reporter.publish(
            # Told last, when nothing of the gang lives: the next attempt may start at once.
            state=GangState.EXITED,
            reason=verdict.reason,
            message=verdict.message,
        )
        failpoints.here("supervisor.end.after")


def _shell_plan(attempt: StagedAttempt, line: str) -> ProcessPlan:
    return replace(attempt.gang.first, command=(*SHELL, line))


def _of_line(verdict: Verdict, reason: Reason, what: str) -> Verdict:
    """The verdict of a line that failed by itself or took too much memory, which is named in it;
    any other as it is.
    """
    if verdict.reason is Reason.OUT_OF_MEMORY:
        return replace(verdict, message=f"{verdict.message} by {what}")
    if verdict.reason not in (Reason.NON_ZERO_EXIT, Reason.SIGNALED):
        return verdict
    return Verdict(reason, f"{what} {verdict.message.partition(' ')[2]}")
