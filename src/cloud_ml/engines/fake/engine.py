"""An engine in memory that keeps the contract, for tests of everything above it.

It runs no process, and listens on ports of the loopback. What a pretended process does stands in
``programs``. Tests may end a process with ``finish``, or make the supervisor vanish with ``lose``.

It plays one machine, or several: see ``nodes``. Then it has a queue of its own for gangs that
have no place, and a machine that is lost takes its tasks with it (``lose_node``).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from cloud_ml.domain.addresses import TcpAddress
from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.gangs import (
    AfterEnd,
    TaskRestarts,
    after_end,
    completed_sentence,
    ended_on_request,
    explain_no_restart,
    next_to_start,
    restart_process,
    too_many_failed,
)
from cloud_ml.domain.workloads.progress import Milestone, Progress
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.recovery import Recovery, lost_work_s, with_recovery
from cloud_ml.domain.workloads.stop_order import next_to_stop
from cloud_ml.engines.abilities import ALL_TASKS, WHOLE_LOG, LogView
from cloud_ml.engines.base import Capacity, Engine, JobPaths
from cloud_ml.engines.fake import programs
from cloud_ml.engines.fake.change_feed import ChangeFeed
from cloud_ml.engines.fake.logs import FakeLogs
from cloud_ml.engines.fake.machine import Machine
from cloud_ml.engines.fake.metrics import FakeMetrics
from cloud_ml.engines.fake.process_ends import find_hung_tasks, with_findings
from cloud_ml.engines.gang import Gang, GangKey
from cloud_ml.errors import Conflict, Unavailable


class FakeEngine(FakeMetrics, Engine):
    """Runs gangs in the imagination.

    Args:
        machine: The imagined machine; a fresh one by default.
        hold: Leave gangs in ``Staging`` until ``begin`` is called.
        has_bucket: Whether a bucket can be mounted; by default every bucket can.
        has_package: Whether there is a trainer with a digest; by default every one is there.
    """

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        hold: bool = False,
        has_bucket: Callable[[str], bool] = lambda _: True,
        has_package: Callable[[str], bool] = lambda _: True,
    ) -> None:
        super().__init__(machine or Machine())
        self.has_bucket = has_bucket
        self.has_package = has_package
        self.hold = hold
        self.broken = False
        """While set, ``ensure`` and ``stop`` raise ``Unavailable``."""
        self.no_secret_files = ""
        """Why jobs cannot get secrets as files."""
        self._feed = ChangeFeed()
        self._logs = FakeLogs(self.machine, self._feed)

    def secret_files_refusal(self) -> str:
        return self.no_secret_files

    async def ensure(self, gang: Gang) -> None:
        self._check()
        if gang.key in self.machine.gangs:
            return
        absent = [mount.bucket for mount in gang.mounts if not self.has_bucket(mount.bucket)]
        if absent:
            raise Unavailable(f"the bucket {absent[0]} is gone; the attempt is planned again")
        self.machine.plans[gang.key] = gang
        self._put(ObservedGang(gang.key.job_uid, gang.key.attempt, GangState.STAGING))
        trainer = gang.environment.trainer
        if trainer is not None and trainer.problem:
            self._end(gang.key, trainer.reason, trainer.problem)
        elif trainer is not None and not self.has_package(trainer.digest):
            self._end(gang.key, Reason.TRAINER_NOT_FOUND, f"there is no trainer {trainer.name}")
        elif gang.variants:  # nothing is staged, so no runtime is found
            self._end(gang.key, Reason.NO_DISTRIBUTED_RECIPE, "no variant fits")
        elif not self.hold:
            self.begin(gang.key)

    async def stop(self, key: GangKey, grace_s: float, why: Reason = Reason.CANCELLED) -> None:
        self._check()
        gang = self.machine.gangs.get(key)
        if gang is None:
            self._put(ObservedGang(key.job_uid, key.attempt, GangState.TOMBSTONED))
            return
        if gang.state.over:
            return
        stubborn = any("stubborn" in plan.command for plan in self.machine.plans[key].processes)
        shorter = grace_s < self.machine.grace_s.get(key, grace_s)
        self.machine.grace_s.setdefault(key, grace_s)
        if not stubborn or shorter or grace_s == 0:
            notice = json.dumps({"reason": why, "deadline": time.time() + grace_s}).encode()
            for plan in self.machine.plans[key].processes:
                if "notice" in plan.command:
                    self.write(key, plan.name, notice)
            self._end(key, Reason.CANCELLED, "stopped on request")

    async def dump_stacks(self, key: GangKey, tasks: Sequence[str]) -> None:
        gang = self.machine.gangs.get(key)
        for process in gang.processes if gang is not None else ():
            if process.running and process.name in tasks:
                words = f"cloudml: stacks of {process.name}\n  File <fake>, line 1 in hang\n"
                self.write(key, process.name, words.encode())

    def restart_refusal(self) -> str:
        return ""

    async def restart_task(self, key: GangKey, task: str, number: int, grace_s: float) -> None:
        self._check()
        del grace_s  # nobody takes time to end here
        gang = self.machine.gangs.get(key)
        if gang is None or gang.state is not GangState.RUNNING:
            return
        found = next((one for one in gang.processes if one.name == task and one.running), None)
        if found is None or found.requested_restarts >= number:
            return
        self.machine.requested_restarts.append((key, task, number))
        restarting = replace(found, requested_restarts=number)
        self._restart(key, ended_on_request(restarting, datetime.now(UTC)))

    async def progress(self, key: GangKey, tasks: Sequence[str]) -> Mapping[str, Progress]:
        reports = self.machine.reports
        return {name: reports[key, name] for name in tasks if (key, name) in reports}

    async def observed(self, job_uid: str) -> Sequence[ObservedGang]:
        gangs = (gang for key, gang in self.machine.gangs.items() if key.job_uid == job_uid)
        return sorted(gangs, key=lambda gang: gang.attempt)

    def changes(self) -> AsyncIterator[str]:
        return self._feed.jobs(self._living_jobs)

    def _living_jobs(self) -> set[str]:
        gangs = self.machine.gangs.items()
        return {key.job_uid for key, gang in gangs if not gang.state.over}

    async def forget(self, job_uid: str) -> None:
        for gang in await self.observed(job_uid):
            if not gang.state.over:
                raise Conflict(f"attempt {gang.attempt} of {job_uid} is not over")
            key = GangKey(job_uid, gang.attempt)
            self.machine.gangs[key] = ObservedGang(job_uid, gang.attempt, GangState.TOMBSTONED)
        self._logs.forget(job_uid)

    async def log_streams(self, job_uid: str) -> Sequence[tuple[int, str]]:
        return self._logs.streams(job_uid)

    def logs(
        self,
        key: GangKey,
        process: str,
        *,
        lines: int | None = None,
        follow: bool = False,
        view: LogView = WHOLE_LOG,
    ) -> AsyncIterator[bytes]:
        del view  # there is no installation, and nobody notes the time
        return self._logs.read(key, process, lines=lines, follow=follow)

    def address(self, job_uid: str, name: str) -> TcpAddress:
        found = self.machine.listeners.get((job_uid, name))
        if found is None:
            raise Unavailable(f"nobody listens at {name}")
        host, port = found.getsockname()
        return TcpAddress(host, port)

    async def open_connection(
        self, job_uid: str, name: str, *, limit: int = 65_536
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = self.address(job_uid, name)
        return await asyncio.open_connection(address.host, address.port, limit=limit)

    def places(self, job_uid: str, tasks: Sequence[str] = ()) -> JobPaths:
        return JobPaths(
            storage="/storage",
            fds="/fds",
            hosts={name: name for name in tasks},
            shared_folder=not self.machine.places.memory_bytes,
        )

    async def capacity(self) -> Capacity:
        nodes = self.machine.places.memory_bytes
        memory = sum(nodes.values()) if nodes else 8 * 2**30
        return Capacity(cpu_millis=4000 * (len(nodes) or 1), memory_bytes=memory)

    # ---- what tests do

    def begin(self, key: GangKey) -> None:
        """Let the gang's processes start and do what their commands say."""
        gang = self.machine.plans[key]
        ports = (port for plan in gang.processes for port in plan.ports)
        if taken := next((port for port in ports if port in self.machine.occupied), None):
            self._end(key, Reason.PORT_TAKEN, f"port {taken} is in use")
            return
        processes = tuple(
            ObservedProcess(plan.role, plan.index, running=False) for plan in gang.tasks
        )
        names = next_to_start(processes, gang.parallel)
        placed = [plan for plan in gang.tasks if plan.name in names]
        if why := self.machine.queue.place(key, placed):
            self._put(replace(self.machine.gangs[key], state=GangState.WAITING, message=why))
            return
        self.machine.starts.append(key)
        self._put(
            replace(
                self.machine.gangs[key],
                state=GangState.RUNNING,
                message="",
                processes=processes,
                node=self.machine.places.node_of(key, processes[0].name) if processes else "",
            )
        )
        if gang.has_tasks:
            self._logs.create(key, [ALL_TASKS])
        self._start_next(key)
        if not processes:
            self._end(key, Reason.COMPLETED, completed_sentence(()))
        self._end_what_hangs(key)

    def _serve_queue(self) -> None:
        """There is room: for tasks that are to start again first, then for gangs in their order."""
        queue = self.machine.queue
        for key, name in [*queue.tasks]:
            ended = next(one for one in self.machine.gangs[key].processes if one.name == name)
            queue.tasks.remove((key, name))
            self._restart(key, ended)
        while (first := queue.first) is not None and not self.hold:
            self.begin(first)
            if first in queue:
                return

    def _start_next(self, key: GangKey) -> None:
        """Start those that have a place now."""
        plan, gang = self.machine.plans[key], self.machine.gangs[key]
        names = next_to_start(gang.processes, plan.parallel)
        places = self.machine.places
        unplaced = [
            one for one in plan.tasks if one.name in names and not places.has_place(key, one.name)
        ]
        if places.place(key, unplaced):
            return  # later ones of an array wait for those that live
        now = datetime.now(UTC)
        processes = tuple(
            replace(one, running=True, started_at=now, node=places.node_of(key, one.name))
            if one.name in names
            else one
            for one in gang.processes
        )
        self._put(replace(gang, processes=processes))
        starting = [one for one in plan.tasks if one.name in names]
        self._logs.create(key, [one.name for one in starting])
        for one in starting:
            programs.run(self, key, one)

    def _end_what_hangs(self, key: GangKey) -> None:
        """Let the time pass after which the gang hangs."""
        names, restarts = find_hung_tasks(self.machine.gangs[key], self.machine.plans[key])
        for name in names:
            self.write(key, name, b"  File <fake>, line 1 in hang\n")
            self._process_ended(
                key, name, Reason.HUNG, f"Hung: {name}", signal="SIGABRT", restarts=restarts
            )

    def _restart(self, key: GangKey, ended: ObservedProcess) -> None:
        """Start one process again as its end says: at once, or when a machine has room for it."""
        gang, places = self.machine.gangs[key], self.machine.places
        if not places.has_place(key, ended.name):
            plan = next(one for one in self.machine.plans[key].tasks if one.name == ended.name)
            if places.place(key, [plan]):
                waits = replace(ended, restarting=True)
                self._put(replace(gang, processes=_with(gang.processes, waits)))
                self.machine.queue.tasks.append((key, ended.name))
                return
        fresh = replace(
            restart_process(ended, datetime.now(UTC)), node=places.node_of(key, ended.name)
        )
        processes = _with(gang.processes, fresh)
        recoveries = gang.recoveries
        if ended.reason is not Reason.CANCELLED:  # somebody asked for that restart
            lost_s = lost_work_s(ended.started_at, ended.finished_at, None)
            one = Recovery(ended.role, str(ended.reason), lost_s=lost_s)
            recoveries = with_recovery(recoveries, one)
        self._put(replace(gang, processes=processes, recoveries=recoveries))
        plans = self.machine.plans[key].tasks
        programs.run(self, key, next(plan for plan in plans if plan.name == ended.name))
        self._end_what_hangs(key)

    def write(self, key: GangKey, process: str, output: bytes) -> None:
        """Add to a process's log."""
        self._logs.append(key, process, output)

    def finish(self, key: GangKey, exit_code: int = 0) -> None:
        """End the gang's first process."""
        self.exit(key, self.machine.plans[key].first.name, exit_code)

    def exit(self, key: GangKey, process: str, exit_code: int) -> None:
        """End one process, and the gang if that is its end."""
        gang = self.machine.gangs[key]
        if gang.state.over:
            return
        good = exit_code == 0
        reason = Reason.COMPLETED if good else Reason.NON_ZERO_EXIT
        message = "the task completed" if good else f"{process} exited with code {exit_code}"
        self._process_ended(key, process, reason, message, exit_code=exit_code)

    def run_out_of_memory(self, key: GangKey, process: str) -> None:
        """End one process that needed more memory than its limit."""
        message = "OOMKilled: its limit was exceeded"
        self._process_ended(key, process, Reason.OUT_OF_MEMORY, message, signal="SIGKILL")

    def _process_ended(
        self,
        key: GangKey,
        process: str,
        reason: Reason,
        message: str,
        *,
        exit_code: int | None = None,
        signal: str | None = None,
        restarts: TaskRestarts | None = None,
    ) -> None:
        gang, plan = self.machine.gangs[key], self.machine.plans[key]
        if gang.state.over:
            return
        ended = replace(
            next(one for one in gang.processes if one.name == process),
            running=False,
            reason=reason,
            message=message,
            exit_code=exit_code,
            signal=signal,
            finished_at=datetime.now(UTC),
        )
        if reason is not Reason.COMPLETED:
            output = self._logs.content(key, process)
            ended = with_findings(ended, plan, gang.milestone, output)
        processes = _with(gang.processes, ended)
        self._put(replace(gang, processes=processes))
        restarts = plan.restarts if restarts is None else restarts
        follows = after_end(processes, ended, plan.completes, restarts, plan.max_failed)
        if follows is AfterEnd.RESTART_TASK:
            self._restart(key, ended)
            return
        self.machine.places.release(key, process)
        if reason is not Reason.COMPLETED:
            ended = explain_no_restart(processes, ended, restarts)
            processes = _with(processes, ended)
            self._put(replace(gang, processes=processes))
        good = follows is AfterEnd.END_GANG and reason is Reason.COMPLETED
        if good or follows is AfterEnd.COMPLETE_GANG:
            self._end(key, Reason.COMPLETED, completed_sentence(processes))
        elif follows is AfterEnd.END_GANG:
            self._end(key, reason, too_many_failed(ended.message, plan.max_failed))
        else:
            self._start_next(key)
            self._serve_queue()

    def reach(self, key: GangKey, milestone: Milestone) -> None:
        """Have the gang come so far."""
        self._put(replace(self.machine.gangs[key], milestone=milestone))

    def lose(self, key: GangKey) -> None:
        """Make the machine lose the gang."""
        gang = self.machine.gangs[key]
        self._put(
            replace(
                gang, state=GangState.LOST, reason=Reason.NODE_LOST, message="the machine restarted"
            )
        )

    def lose_node(self, node: str) -> None:
        """Make a machine vanish with its tasks. What runs on others is told."""
        for key, task in self.machine.places.lose(node):
            self.machine.places.release(key, task)
            process = next(one for one in self.machine.gangs[key].processes if one.name == task)
            if process.running:
                message = f"NodeLost: {task} was on {node}, which is gone"
                self._process_ended(key, task, Reason.NODE_LOST, message)

    def preempt(self, key: GangKey, task: str) -> None:
        """Give the place of a task to others, as a scheduler does."""
        node = self.machine.places.node_of(key, task)
        self.machine.places.release(key, task)
        message = f"Preempted: the place of {task} on {node} was given to others"
        self._process_ended(key, task, Reason.PREEMPTED, message)

    def _end(self, key: GangKey, reason: Reason, message: str) -> None:
        gang = self.machine.gangs[key]
        if gang.state.over:
            return
        self._take_leave(key)
        processes = tuple(
            replace(
                process,
                running=False,
                reason=reason if reason is Reason.COMPLETED else Reason.CANCELLED,
                message=message,
                finished_at=datetime.now(UTC),
            )
            if process.reason is None
            else replace(process, restarting=False)
            for process in gang.processes
        )
        self._put(
            replace(
                gang, state=GangState.EXITED, reason=reason, message=message, processes=processes
            )
        )

    def _take_leave(self, key: GangKey) -> None:
        """Have those that run say that they are stopped, in the order in which they are."""
        plan, processes = self.machine.plans[key], self.machine.gangs[key].processes
        living = [one.name for one in processes if one.running]
        commands = {one.name: one.command for one in plan.tasks}
        while living:
            stopping = next_to_stop(living, plan.stopped_last)
            for name in stopping:
                if "leave" in commands[name]:
                    self.write(key, name, b"leaving\n")
            living = [name for name in living if name not in stopping]

    def _put(self, gang: ObservedGang) -> None:
        key = GangKey(gang.job_uid, gang.attempt)
        self.machine.gangs[key] = gang
        if gang.state.over:
            self._let_go(key)
        self._feed.add(gang.job_uid)

    def _let_go(self, key: GangKey) -> None:
        """Nothing of the gang is anywhere any more: others may have its places."""
        machine = self.machine
        for close in machine.at_end.pop(key, ()):
            close()
        machine.places.release_all(key)
        machine.queue.drop(key)
        self._serve_queue()

    def _check(self) -> None:
        if self.broken:
            raise Unavailable("the fake engine is broken at present")


def _with(
    processes: Sequence[ObservedProcess], changed: ObservedProcess
) -> tuple[ObservedProcess, ...]:
    """The processes with this one in the place of the one of its name."""
    return tuple(changed if one.name == changed.name else one for one in processes)
