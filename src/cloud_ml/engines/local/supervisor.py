"""One supervisor per gang: stages, starts, watches, reports, and leaves nothing behind.

A child of the spawner that outlives the server. It holds the gang's claim, is the parent (and
subreaper) of everything the gang starts, and publishes what it finds in the ledger. When it is
killed, the kernel kills the gang's processes with it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import FrameType

from cloud_ml import failpoints, linux
from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.gangs import ends_gang
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import ProcessPlan
from cloud_ml.engines.local import launch, proctree
from cloud_ml.engines.local.cgroups import Group
from cloud_ml.engines.local.config import LocalConfig
from cloud_ml.engines.local.disk import DiskWatch
from cloud_ml.engines.local.disk_shares import DiskShares
from cloud_ml.engines.local.failures import explain
from cloud_ml.engines.local.failures.explain import FailureContext
from cloud_ml.engines.local.ledger import Ledger
from cloud_ml.engines.local.limits import Limiter, Verdict, signal_name
from cloud_ml.engines.local.logfile import LogWriter
from cloud_ml.engines.local.logview import note_code
from cloud_ml.engines.local.network import TENANT
from cloud_ml.engines.local.project_ids import ProjectLimit
from cloud_ml.engines.local.reporting import Reporter
from cloud_ml.engines.local.resolved_gang import ResolvedGang
from cloud_ml.engines.local.stage import WRITABLE, Ahead, Stage, Staged
from cloud_ml.engines.local.warm_pool.interpreter import NotFit
from cloud_ml.engines.local.watched import WatchedTree
from cloud_ml.environments.base import EnvironmentFailed
from cloud_ml.environments.removing import remove

_KILL_LIMIT_S = 30.0
_UNLIMITED = 1 << 62
_MOST_NOTICES, _LONGEST_NOTICE = 10, 500
"""What a report holds of the notices about an environment; the log has all of them."""
_SHELL = ("/bin/sh", "-c")
_RUNNING_S, _SPOKEN_S = 0.1, 0.02
"""That a gang runs is told so long after its start or its first words, unless it has ended: for
one that ends at once, one report does.
"""


class StopRequested(BaseException):
    """Raised by the signal handler while staging, so that whatever is waited for is given up."""


@dataclass
class Task:
    """A process of the gang that was started."""

    plan: ProcessPlan
    launched: launch.Launched
    log: LogWriter
    limiter: Limiter
    observed: ObservedProcess
    exit: launch.Exit | None = None


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
            gang.key.job_uid, gang.key.attempt, GangState.STAGING, node=config.node
        )
        self._reporter = Reporter(ledger, report)
        self._ahead = ahead
        self._stage: Stage | None = None
        self._tasks: list[Task] = []
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
        self._bound: ProjectLimit | None = None
        self._context = FailureContext(own_network=gang.network == TENANT)
        self._grace_s = config.stop_grace_s if gang.grace_s is None else gang.grace_s
        self._verdict: Verdict | None = None
        self._kill_at: float | None = None
        self._stop_grace_s = float("inf")
        self._deadline: float | None = None
        self._selector = selectors.DefaultSelector()

    def run(self) -> bool:
        """Supervise to the end. Returns without a trace if the gang was claimed or stopped before.

        True when all went the usual way, so that this process has nothing left of the gang and may
        serve another.
        """
        failpoints.here("supervisor.claim.before")
        if not self._ledger.claim(self._gang.key, [group.name for group in self._groups]):
            return False
        failpoints.here("supervisor.claim.after")
        linux.become_subreaper()
        self._listen_to_signals()
        self._reporter.reach("claimed")
        stage = self._stage = Stage(
            self._gang, self._config, self._ledger, self._groups, self._ahead
        )
        try:
            stage.make_folders()
            self._bound = stage.bind_to_limit()
            failpoints.here("supervisor.stage.before")
            self._run_staged(stage)
        except StopRequested:
            self._end(Reason.CANCELLED, "stopped while it was starting")
        except EnvironmentFailed as failure:
            stage.log(f"cloudml: {failure.message}\n".encode())
            self._end(Reason(failure.reason), failure.message)
        except OSError as error:
            stage.log(f"cloudml: the attempt cannot be started: {error}\n".encode())
            self._end(Reason.START_FAILED, f"the attempt cannot be started: {error}")
        else:
            return True
        finally:
            self._disk.close()
            stage.clean_up()
            failpoints.here("supervisor.clean.after")
            self._stop_listening()
        return False

    def _run_staged(self, stage: Stage) -> None:
        self._stop_if_asked()
        self._check_kept_disk()
        staged = stage.prepare(self._reporter.reach)
        self._reporter.staging = False
        self._reporter.reach("environment")
        self._context = replace(
            self._context, folders=staged.code_folders, working_folder=staged.view.folder
        )
        failpoints.here("supervisor.stage.after")
        self._reporter.update(
            runtime=staged.runtime,
            environment_lock=staged.lock,
            trainer_digest=staged.trainer_digest,
            notices=tuple(notice[:_LONGEST_NOTICE] for notice in staged.notices[:_MOST_NOTICES]),
        )
        self._stop_if_asked()
        if self._gang.wall_time_s:
            self._deadline = time.monotonic() + self._gang.wall_time_s
        first = self._gang.processes[0]
        if self._gang.prepare_command:
            self._run_line(stage, staged, first, self._gang.prepare_command)
            if self._failed(Reason.PREPARE_FAILED, "the prepare command"):
                return
        failpoints.here("supervisor.start.before")
        self._start(stage, staged, self._gang.processes)
        failpoints.here("supervisor.start.after")
        self._reporter.reach("started")
        running = tuple(task.observed for task in self._tasks)
        self._reporter.update(state=GangState.RUNNING, processes=running)
        self._reporter.publish_within(_RUNNING_S)
        self._watch()
        if self._gang.finish_command and self._verdict is not None:
            if self._verdict.reason is Reason.COMPLETED:
                self._finish(stage, staged, first, self._gang.finish_command)
            elif self._gang.serves and self._left_when_asked():
                self._take_leave(stage, staged, first, self._gang.finish_command)
        verdict = self._verdict or Verdict(Reason.COMPLETED, "the job completed")
        self._end(verdict.reason, verdict.message)

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

    # ---- starting

    def _start(self, stage: Stage, staged: Staged, plans: Sequence[ProcessPlan]) -> None:
        self._tasks = []
        self._verdict = None
        for number, plan in enumerate(plans):
            group: Group = self._groups[number] if self._groups else WatchedTree()
            limiter = self._limiter(stage, staged, plan, group)
            launched = self._born(stage, staged, plan) or stage.seat(group).run(
                stage.buckets.without_removed(staged.view),
                staged.command(plan),
                staged.environment(plan),
                stage.fence.user,
            )
            group.attach(launched.pid)
            observed = ObservedProcess(plan.role, plan.index, running=True, started_at=_now())
            task = Task(plan, launched, stage.writer(plan.name), limiter, observed)
            if plan in self._gang.processes:  # and no shell line before or after it
                note_code(self._ledger.log_folder(self._gang.key), plan.name, task.log.written)
            self._tasks.append(task)
            self._selector.register(
                launched.output, selectors.EVENT_READ, (self._read_output, task)
            )
            for end in launched.ends:
                self._selector.register(end, selectors.EVENT_READ, (self._collect, task))

    def _limiter(self, stage: Stage, staged: Staged, plan: ProcessPlan, group: Group) -> Limiter:
        folder, used = stage.attempt_folder, stage.zygote(staged, plan) is not None
        built = stage.built and bool(self._groups) and group is self._groups[0]
        try:
            return Limiter(
                self._config, plan, staged.base_memory, group, folder, used=used, built=built
            )
        except OSError:
            if not used:
                raise
        stage.leave_zygote()  # what it imported is more than the job may have
        return Limiter(self._config, plan, staged.base_memory, group, folder, used=True)

    def _born(self, stage: Stage, staged: Staged, plan: ProcessPlan) -> launch.Launched | None:
        """The process, begun by an interpreter that waited for it; ``None`` if it has to start
        the ordinary way.
        """
        zygote = stage.zygote(staged, plan)
        if zygote is None:
            return None
        try:
            launched = zygote.run(stage.job(staged, plan), staged.completed(plan))
        except NotFit as why:
            print(  # noqa: T201
                f"cloudml: {self._gang.key} does not use its zygote: {why}",
                file=sys.stderr,
                flush=True,
            )
            return None
        self._reporter.reach("imported")
        return launched

    def _run_line(self, stage: Stage, staged: Staged, first: ProcessPlan, line: str) -> None:
        """Run a shell line of the user's with the first process's limits and log, to its end."""
        self._start(stage, staged, [replace(first, command=(*_SHELL, line))])
        self._watch()

    def _failed(self, reason: Reason, what: str) -> bool:
        verdict = self._verdict
        if verdict is None or verdict.reason is Reason.COMPLETED:
            return False
        if verdict.reason in (Reason.NON_ZERO_EXIT, Reason.SIGNALED):
            verdict = Verdict(reason, f"{what} {verdict.message.partition(' ')[2]}")
        self._end(verdict.reason, verdict.message)
        return True

    def _finish(self, stage: Stage, staged: Staged, first: ProcessPlan, line: str) -> None:
        processes = self._reporter.report.processes
        note_code(self._ledger.log_folder(self._gang.key), first.name, self._tasks[0].log.written)
        self._reporter.publish(state=GangState.FINISHING)
        self._run_line(stage, staged, first, line)
        self._reporter.update(processes=processes)
        verdict = self._verdict
        if verdict is not None and verdict.reason in (Reason.NON_ZERO_EXIT, Reason.SIGNALED):
            self._verdict = Verdict(
                Reason.FINISH_FAILED, f"the finish command {verdict.message.partition(' ')[2]}"
            )

    def _left_when_asked(self) -> bool:
        """Whether it was stopped and went by itself, as what serves does in the end."""
        stopped = self._verdict is not None and self._verdict.reason is Reason.CANCELLED
        return stopped and all(
            task.exit is not None and task.exit.signal != signal.SIGKILL for task in self._tasks
        )

    def _take_leave(self, stage: Stage, staged: Staged, first: ProcessPlan, line: str) -> None:
        """Run the finish command of what was stopped, for as long as the stop granted. What it
        says is in the log.
        """
        processes, verdict = self._reporter.report.processes, self._verdict
        note_code(self._ledger.log_folder(self._gang.key), first.name, self._tasks[0].log.written)
        self._start(stage, staged, [replace(first, command=(*_SHELL, line))])
        self._verdict = verdict
        self._kill_at = time.monotonic() + (self._ledger.stop_requested(self._gang.key) or 0.0)
        self._watch()
        self._reporter.update(processes=processes)

    # ---- watching

    def _watch(self) -> None:
        """Wait until every started process is gone, keeping limits and wishes to stop."""
        while any(task.exit is None for task in self._tasks):
            for key, _ in self._selector.select(self._patience()):
                handle, argument = key.data
                handle(argument)
            self._stop_if_asked()
            self._keep_limits()
        self._kill_the_rest()

    def _patience(self) -> float:
        now = time.monotonic()
        times = [task.limiter.next_look for task in self._tasks if task.exit is None]
        times += [
            moment
            for moment in (self._kill_at, self._deadline, self._reporter.due_at)
            if moment is not None
        ]
        return max(0.0, min([*times, self._disk.next_look, now + 5.0]) - now)

    def _keep_limits(self) -> None:
        now = time.monotonic()
        if not self._config.bwrap:  # in the sandbox its first process does that
            proctree.bury_orphans({task.launched.pid for task in self._tasks})
        self._reporter.publish_due(now)
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            limit = self._gang.wall_time_s
            self._stop_all(
                Verdict(Reason.TIME_LIMIT, f"TimeLimitExceeded: the limit of {limit} s is over"),
                grace_s=self._grace_s,
            )
        for task in self._tasks:
            if task.exit is None and now >= task.limiter.next_look:
                verdict = task.limiter.look(now)
                if verdict is not None:
                    self._stop_all(verdict, grace_s=0.0)
        if now >= self._disk.next_look:
            verdict = self._disk.look(lambda: proctree.descendants(os.getpid()))
            if verdict is None and self._bound is not None:
                verdict = self._bound.verdict()
            if verdict is not None:
                self._stop_all(verdict, grace_s=0.0)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            for task in self._tasks:
                if task.exit is None:
                    proctree.send(task.launched.pid, signal.SIGKILL)
                    task.limiter.kill()

    def _read_output(self, task: Task) -> None:
        try:
            data = os.read(task.launched.output, 1 << 18)
        except BlockingIOError:
            return
        if data:
            task.log.write(data)
            if (
                self._reporter.report.state is GangState.RUNNING
                and "output" not in self._reporter.report.stages
            ):
                self._reporter.reach("output")
                self._reporter.publish_within(_SPOKEN_S)
        else:
            self._selector.unregister(task.launched.output)

    def _collect(self, task: Task) -> None:
        """A process has ended: note how, and stop the others if that is the end of the gang."""
        if task.exit is not None:  # both of its ends came at once
            return
        for end in task.launched.ends:
            self._selector.unregister(end)
        task.exit = launch.wait(task.launched)
        verdict = self._explained(task, task.limiter.judge(task.exit, task.plan.name))
        task.observed = replace(
            task.observed,
            running=False,
            reason=verdict.reason,
            message=verdict.message,
            exit_code=task.exit.code,
            signal=signal_name(task.exit.signal) if task.exit.signal else None,
            finished_at=_now(),
            usage=task.limiter.usage(),
        )
        if self._verdict is None and ends_gang(
            [each.observed for each in self._tasks], task.observed
        ):
            self._stop_all(verdict, grace_s=self._grace_s)

    def _explained(self, task: Task, verdict: Verdict) -> Verdict:
        """With the last words of the process, and what usually helps."""
        if task.exit is None or verdict.reason not in (Reason.NON_ZERO_EXIT, Reason.SIGNALED):
            return verdict
        # Its end may be seen before its last words are. Who reads the end of the pipe lets go of
        # it: not here, where an event of it may be waiting its turn.
        with contextlib.suppress(OSError):
            task.log.write(os.read(task.launched.output, 1 << 18))
        if self._bound is not None and (full := self._bound.verdict(task.log.tail)) is not None:
            return full
        killed_by = signal_name(task.exit.signal) if task.exit.signal else ""
        context = replace(self._context, command=_shell_command(task.plan))
        message = explain.message(
            verdict.message, task.log.tail, context, code=task.exit.code, killed_by=killed_by
        )
        return replace(verdict, message=message)

    def _stop_all(self, verdict: Verdict, grace_s: float) -> None:
        if self._verdict is None:
            self._verdict = verdict
        kill_at = time.monotonic() + grace_s
        self._kill_at = min(self._kill_at, kill_at) if self._kill_at is not None else kill_at
        if grace_s > 0:
            for task in self._tasks:
                if task.exit is None:
                    main = proctree.main_process(
                        task.launched.pid, sandboxed=bool(self._config.bwrap)
                    )
                    proctree.send(main or task.launched.pid, signal.SIGTERM)

    def _kill_the_rest(self) -> None:
        """End daemons and grandchildren, and take what they and the pipe still hold."""
        self._kill_at = None
        for task in self._tasks:
            task.limiter.kill()
        proctree.end_all_descendants(_KILL_LIMIT_S)
        for task in self._tasks:
            while task.launched.output in self._selector.get_map():
                before = task.log.written
                self._read_output(task)
                if task.log.written == before:
                    break
            if task.launched.output in self._selector.get_map():
                self._selector.unregister(task.launched.output)
            task.log.close()
            task.launched.close()
        self._reporter.update(processes=tuple(task.observed for task in self._tasks))

    # ---- wishes and reports

    def _listen_to_signals(self) -> None:
        receiver, sender = socket.socketpair()
        for end in (receiver, sender):
            end.setblocking(False)
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGALRM, self._reporter.on_alarm)
        if not self._config.bwrap:  # orphans of the job are buried when they die
            signal.signal(signal.SIGCHLD, lambda *_: None)
        self._wakeup = (receiver, sender)
        self._selector.register(receiver, selectors.EVENT_READ, (_drain, receiver))

    def _stop_listening(self) -> None:
        """Leave nothing behind for the next gang of this process. A late wish for this one is
        over.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, _heed_not)
        signal.set_wakeup_fd(-1)
        for end in self._wakeup:
            end.close()
        self._selector.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._reporter.staging and self._ledger.stop_requested(self._gang.key) is not None:
            self._reporter.staging = False
            raise StopRequested

    def _stop_if_asked(self) -> None:
        grace_s = self._ledger.stop_requested(self._gang.key)
        if grace_s is None:
            return
        if not any(task.exit is None for task in self._tasks):
            if not self._tasks:
                raise StopRequested
            return
        if self._verdict is None:
            self._stop_all(Verdict(Reason.CANCELLED, "stopped on request"), grace_s)
            self._stop_grace_s = grace_s
        elif (
            self._kill_at is not None and grace_s < self._stop_grace_s
        ):  # asked again, with less time
            self._kill_at = min(self._kill_at, time.monotonic() + grace_s)
            self._stop_grace_s = grace_s

    def _end(self, reason: Reason, message: str) -> None:
        self._reporter.staging = False
        for group in self._groups:
            group.kill()
        proctree.end_all_descendants(_KILL_LIMIT_S)
        if self._stage is not None and self._tasks:
            self._reporter.update(unsaved_files=self._stage.find_unsaved_files())
        # A replica that was stopped does not come again; the room of a gang that gave way is what
        # others wait for.
        if (self._gang.serves and reason is Reason.CANCELLED) or self._disk.gave_way:
            remove(self._ledger.work_folder(self._gang.key.job_uid))
        if not self._gang.serves:
            self._ledger.kept_disk.note(self._gang.tenant, self._gang.key.job_uid, self._disk.size)
        self._reporter.reach("ended")
        failpoints.here("supervisor.end.before")
        self._reporter.publish(state=GangState.EXITED, reason=reason, message=message)
        failpoints.here("supervisor.end.after")


def _shell_command(plan: ProcessPlan) -> str:
    """The text that ``_run_line`` hands to the shell."""
    return plan.command[2] if plan.command[:2] == _SHELL else ""


def _heed_not(number: int, frame: FrameType | None) -> None:
    del number, frame


def _drain(receiver: socket.socket) -> None:
    try:
        while receiver.recv(4096):
            pass
    except BlockingIOError:
        pass


def _now() -> datetime:
    return datetime.now(UTC)
