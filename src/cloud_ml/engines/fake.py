"""An engine in memory that keeps the contract, for tests of everything above it.

It runs no process, and listens on ports of the loopback. A command's first word says what the
pretended process does:
``("fake", "exit", "3")``, ``("fake", "print", "hello")``, ``("fake", "wait")`` (until told or
stopped), ``("fake", "stubborn")`` (ignores SIGTERM), ``("fake", "listen", NAME, TEXT)`` (sends the
text to each who connects, until stopped). Tests may end a process with ``finish``, or
make the supervisor vanish with ``lose``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cloud_ml.domain.addresses import TcpAddress
from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import WHOLE_LOG, Capacity, Engine, Gang, GangKey, JobPaths, LogView
from cloud_ml.errors import Conflict, Unavailable


@dataclass
class Machine:
    """What outlives an engine object: share one between two engines to play a restart of the
    server.
    """

    def __post_init__(self) -> None:
        self.gangs: dict[GangKey, ObservedGang] = {}
        self.plans: dict[GangKey, Gang] = {}
        self.logs: dict[tuple[GangKey, str], bytes] = {}
        self.grace_s: dict[GangKey, float] = {}
        """Of the first stop of each gang."""
        self.listeners: dict[tuple[str, str], socket.socket] = {}
        """Of jobs that listen, by the job and the name of what it listens at."""
        self.at_end: dict[GangKey, list[Callable[[], None]]] = {}
        """Called when a gang is over."""
        self.starts: list[GangKey] = []
        """Every start of user code, in order: a key that is in it twice is a broken promise."""


class FakeEngine(Engine):
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
        self.has_bucket = has_bucket
        self.has_package = has_package
        self.machine = machine or Machine()
        self.hold = hold
        self.broken = False
        """While set, ``ensure`` and ``stop`` raise ``Unavailable``."""
        self.no_secret_files = ""
        """Why jobs cannot get secrets as files."""
        self._changed = asyncio.Condition()
        self._changes: set[str] = set()

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
        elif not self.hold:
            self.begin(gang.key)

    async def stop(self, key: GangKey, grace_s: float) -> None:
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
            self._end(key, Reason.CANCELLED, "stopped on request")

    async def observed(self, job_uid: str) -> Sequence[ObservedGang]:
        gangs = (gang for key, gang in self.machine.gangs.items() if key.job_uid == job_uid)
        return sorted(gangs, key=lambda gang: gang.attempt)

    async def changes(self) -> AsyncIterator[str]:
        self._changes |= {
            key.job_uid for key, gang in self.machine.gangs.items() if not gang.state.over
        }
        while True:
            while self._changes:
                yield self._changes.pop()
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._changes))

    async def forget(self, job_uid: str) -> None:
        for gang in await self.observed(job_uid):
            if not gang.state.over:
                raise Conflict(f"attempt {gang.attempt} of {job_uid} is not over")
            key = GangKey(job_uid, gang.attempt)
            self.machine.gangs[key] = ObservedGang(job_uid, gang.attempt, GangState.TOMBSTONED)
        for stream in [stream for stream in self.machine.logs if stream[0].job_uid == job_uid]:
            del self.machine.logs[stream]

    async def log_streams(self, job_uid: str) -> Sequence[tuple[int, str]]:
        return [(key.attempt, name) for key, name in self.machine.logs if key.job_uid == job_uid]

    async def logs(
        self,
        key: GangKey,
        process: str,
        *,
        lines: int | None = None,
        follow: bool = False,
        view: LogView = WHOLE_LOG,
    ) -> AsyncIterator[bytes]:
        del view  # there is no installation, and nobody notes the time
        position = 0
        if lines is not None:
            content = self.machine.logs.get((key, process), b"")
            kept = content.splitlines(keepends=True)[-lines:] if lines > 0 else []
            position = len(content) - sum(map(len, kept))
        while True:
            gang = self.machine.gangs.get(key)
            over = not follow or (gang is not None and gang.state.over)
            content = self.machine.logs.get((key, process), b"")
            if len(content) > position:
                yield content[position:]
                position = len(content)
                if not over:
                    continue  # the reader took its time: what was written meanwhile woke nobody
            if over:
                return
            async with self._changed:
                await self._changed.wait()

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

    def places(self, job_uid: str) -> JobPaths:
        return JobPaths(storage="/storage", fds="/fds")

    async def capacity(self) -> Capacity:
        return Capacity(cpu_millis=4000, memory_bytes=8 * 2**30)

    # ---- what tests do

    def begin(self, key: GangKey) -> None:
        """Let the gang's processes start and do what their commands say."""
        gang = self.machine.plans[key]
        self.machine.starts.append(key)
        processes = tuple(
            ObservedProcess(plan.role, plan.index, running=True, started_at=datetime.now(UTC))
            for plan in gang.processes
        )
        self._put(replace(self.machine.gangs[key], state=GangState.RUNNING, processes=processes))
        for plan in gang.processes:
            self.machine.logs.setdefault((key, plan.name), b"")
        for plan in gang.processes:
            words = plan.command[1:] if plan.command[0] == "fake" else ("wait",)
            if words[0] == "print":
                self.write(key, plan.name, (words[1] + "\n").encode())
                self.finish(key, 0)
            elif words[0] == "exit":
                self.finish(key, int(words[1]))
            elif words[0] == "listen":
                self._listen(key, words[1], words[2].encode())

    def write(self, key: GangKey, process: str, output: bytes) -> None:
        """Add to a process's log."""
        self.machine.logs[key, process] = self.machine.logs.get((key, process), b"") + output
        self._wake(key.job_uid)

    def finish(self, key: GangKey, exit_code: int = 0) -> None:
        """End the gang as its first process would."""
        good = exit_code == 0
        reason = Reason.COMPLETED if good else Reason.NON_ZERO_EXIT
        message = "the job completed" if good else f"master-0 exited with code {exit_code}"
        self._end(key, reason, message, exit_code)

    def lose(self, key: GangKey) -> None:
        """Make the machine lose the gang."""
        gang = self.machine.gangs[key]
        self._put(
            replace(
                gang, state=GangState.LOST, reason=Reason.NODE_LOST, message="the machine restarted"
            )
        )

    def _end(
        self, key: GangKey, reason: Reason, message: str, exit_code: int | None = None
    ) -> None:
        gang = self.machine.gangs[key]
        if gang.state.over:
            return
        processes = tuple(
            replace(
                process,
                running=False,
                reason=reason,
                message=message,
                exit_code=exit_code,
                finished_at=datetime.now(UTC),
            )
            for process in gang.processes
        )
        self._put(
            replace(
                gang, state=GangState.EXITED, reason=reason, message=message, processes=processes
            )
        )

    def _listen(self, key: GangKey, name: str, text: bytes) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.machine.listeners[key.job_uid, name] = listener
        listener.setblocking(False)
        loop = asyncio.get_running_loop()

        def accept() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                connection.sendall(text)

        loop.add_reader(listener, accept)

        def close() -> None:
            del self.machine.listeners[key.job_uid, name]
            loop.remove_reader(listener)
            listener.close()

        self.machine.at_end.setdefault(key, []).append(close)

    def _put(self, gang: ObservedGang) -> None:
        key = GangKey(gang.job_uid, gang.attempt)
        self.machine.gangs[key] = gang
        for close in self.machine.at_end.pop(key, ()) if gang.state.over else ():
            close()
        self._wake(gang.job_uid)

    def _wake(self, uid: str) -> None:
        self._changes.add(uid)
        try:
            task = asyncio.get_running_loop().create_task(self._notify())
        except RuntimeError:  # called outside a loop: nobody waits
            return
        _notifications.add(task)
        task.add_done_callback(_notifications.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _check(self) -> None:
        if self.broken:
            raise Unavailable("the fake engine is broken at present")


_notifications: set[asyncio.Task[None]] = set()
