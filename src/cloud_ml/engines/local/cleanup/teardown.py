"""Ends everything that an engine has on this machine, while no server runs: its processes first,
then the rest.

Each process is signalled through a handle, after it has proved to be one of this engine: a
supervisor by the start time in its gate, every process of ours by its standard error, which is a
file of the engine's folder. Tables, links and control groups are told apart by their owners.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.gang import GangKey
from cloud_ml.engines.local.cgroups import files
from cloud_ml.engines.local.cleanup import orphans, owners
from cloud_ml.engines.local.cleanup.orphans import Orphan
from cloud_ml.engines.local.ledger import Gate, Ledger, is_alive, lost
from cloud_ml.engines.local.network import pins
from cloud_ml.engines.local.network.pins import Pins
from cloud_ml.engines.local.spawner.requests import SOCKET_NAME
from cloud_ml.process_handles import ProcessHandle, logs_into, wait_for_all, with_log_in

MESSAGE = "an operator ended everything of this server: cloudml server stop --everything"
SPAWNER_LOCK = "spawner.lock"
_CGROUPS = Path("/sys/fs/cgroup")
_AFTER_GRACE_S = 15.0
"""A supervisor tidies up after its job within this time, or is killed."""
_KILL_S = 20.0
_LOOK_S = 0.02
# struct flock on 64-bit machines: type, whence, start, length, process id.
_FLOCK = "@hhqqi"


@dataclass(frozen=True)
class EngineState:
    """What of an engine is on this machine. ``things`` are tables, links, control groups and
    networks.
    """

    gangs: Sequence[GangKey] = ()
    spawner: int | None = None
    things: Sequence[Orphan] = field(default=())


class Teardown:
    """Everything of the engine whose folder is ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ledger = Ledger(root)
        self._inside = f"{os.path.realpath(root)}/"

    def survey(self) -> EngineState:
        """What there is now."""
        if not self._root.is_dir():
            return EngineState()
        return EngineState(self._running(), self.spawner_pid(), self._things())

    def spawner_pid(self) -> int | None:
        """The spawner that runs, as the kernel knows it from the lock that it holds."""
        try:
            lock = os.open(self._root / SPAWNER_LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            # F_GETLK returns the process that holds a record lock; flock(2) has no equivalent.
            request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, request))
        finally:
            os.close(lock)
        return pid if kind != fcntl.F_UNLCK and pid > 0 else None

    def end(self, grace_of: Callable[[str], float]) -> None:
        """End the spawner, the gangs and what is left of them, and remove what they had on the
        machine.

        Args:
            grace_of: Seconds that a job has between SIGTERM and SIGKILL, by its uid.
        """
        if not self._root.is_dir():
            return
        # End the spawner first, so that nothing starts while the rest is ended.
        self._end_spawner()
        ended = self._end_gangs(grace_of)
        self._kill_the_rest()
        self._note_reason(ended)
        self._take_away_things()
        if self.spawner_pid() is None:  # one that was killed leaves its socket
            (self._root / SOCKET_NAME).unlink(missing_ok=True)

    # ---- processes

    def _running(self) -> list[GangKey]:
        return [key for key, gate in self._list_claimed() if self._is_ours(gate)]

    def _list_claimed(self) -> Iterator[tuple[GangKey, Gate]]:
        if not self._ledger.gates.is_dir():
            return
        for uid in sorted(self._ledger.known_jobs()):
            for attempt in self._ledger.attempts(uid):
                gate = self._ledger.gate(key := GangKey(uid, attempt))
                report = self._ledger.read_report(key)
                if (
                    gate is not None
                    and gate.claimed
                    and not (report is not None and report.state.over)
                ):
                    yield key, gate

    def _is_ours(self, gate: Gate) -> bool:
        """Whether the supervisor lives, and is not that of the folder that this one is a copy
        of.
        """
        return is_alive(gate) and logs_into(gate.pid, self._inside)

    def _end_spawner(self) -> None:
        pid = self.spawner_pid()
        handle = (
            ProcessHandle.open(pid, lambda _: self.spawner_pid() == pid)
            if pid is not None
            else None
        )
        if handle is not None:
            with handle:
                handle.send(signal.SIGTERM)
                if not handle.wait(_KILL_S):
                    handle.send(signal.SIGKILL)
                    handle.wait(_KILL_S)

    def _end_gangs(self, grace_of: Callable[[str], float]) -> list[GangKey]:
        """Ask all supervisors to stop their gangs, those too that claim one while this goes on;
        returns which.
        """
        deadlines: dict[GangKey, float] = {}
        while running := [(key, gate) for key, gate in self._list_claimed() if self._is_ours(gate)]:
            now = time.monotonic()
            for key, gate in running:
                if key not in deadlines:
                    grace_s = grace_of(key.job_uid)
                    deadlines[key] = now + grace_s + _AFTER_GRACE_S
                    self._ledger.request_stop(key, grace_s)
                    self._signal(gate, signal.SIGTERM)
                elif now > deadlines[key]:
                    self._signal(gate, signal.SIGKILL)
            time.sleep(_LOOK_S)
        return list(deadlines)

    def _signal(self, gate: Gate, number: signal.Signals) -> None:
        handle = ProcessHandle.open(gate.pid, lambda _: self._is_ours(gate))
        if handle is not None:
            with handle:
                handle.send(number)

    def _kill_the_rest(self) -> None:
        """Supervisors without a gang, and processes of jobs whose supervisor was killed."""
        deadline = time.monotonic() + _KILL_S
        marks = {f"CLOUDML_GANG={key}".encode() for key in self._list_gangs()}
        while handles := self._left(marks):
            for handle in handles:
                handle.send(signal.SIGKILL)
            wait_for_all(handles, _KILL_S)
            for handle in handles:
                handle.close()
            if time.monotonic() > deadline:
                return

    def _list_gangs(self) -> Iterator[GangKey]:
        """Gangs that this engine has had: not those whose supervisor belongs to another folder."""
        if not self._ledger.gates.is_dir():
            return
        for uid in self._ledger.known_jobs():
            for attempt in self._ledger.attempts(uid):
                gate = self._ledger.gate(key := GangKey(uid, attempt))
                if (
                    gate is not None
                    and gate.claimed
                    and not (is_alive(gate) and not self._is_ours(gate))
                ):
                    yield key

    def _left(self, marks: set[bytes]) -> list[ProcessHandle]:
        in_groups = {pid for thing in self._things() for pid in _members(thing.groups)}
        pids = {*with_log_in(self._root), *in_groups, *_find_marked(marks)} - {os.getpid()}

        def is_ours(pid: int) -> bool:
            if logs_into(pid, self._inside) or _has_mark(pid, marks):
                return True
            return any(pid in _members(thing.groups) for thing in self._things())

        return [handle for pid in pids if (handle := ProcessHandle.open(pid, is_ours)) is not None]

    def _note_reason(self, ended: Sequence[GangKey]) -> None:
        """Have the next server know why these gangs ended. What had ended by itself before stays
        as it is.
        """
        for key in ended:
            gate, report = self._ledger.gate(key), self._ledger.read_report(key)
            report = report or ObservedGang(key.job_uid, key.attempt, GangState.STAGING)
            if not report.state.over and gate is not None:
                report = lost(report, gate)
            if report.reason in (Reason.CANCELLED, Reason.SUPERVISOR_LOST):
                self._report(report)

    def _report(self, ended: ObservedGang) -> None:
        now = datetime.now(UTC)
        processes = tuple(
            replace(
                each,
                running=False,
                reason=Reason.NODE_LOST,
                message=MESSAGE,
                finished_at=each.finished_at or now,
            )
            if each.reason in (None, Reason.CANCELLED, Reason.SUPERVISOR_LOST)
            else each
            for each in ended.processes
        )
        with contextlib.suppress(OSError):  # a full disk
            self._ledger.report(
                replace(ended, reason=Reason.NODE_LOST, message=MESSAGE, processes=processes)
            )

    # ---- what is no process

    def _things(self) -> list[Orphan]:
        names = {
            owners.instance_of(str(path)) for path in (self._root, Path(self._inside.rstrip("/")))
        }
        folders = _parents_of_groups({f"cloudml-{name}" for name in names})
        found = orphans.find_of(lambda owner: _is_of(owner, self._root), folders)
        unmarked = [
            folder / f"cloudml-{name}"
            for folder in folders
            for name in names
            if owners.is_unmarked(folder / f"cloudml-{name}")
        ]
        return (
            [*found, Orphan(owners.owner_of(str(self._root)), groups=unmarked)]
            if unmarked
            else found
        )

    def _take_away_things(self) -> None:
        if not (things := self._things()):
            return
        lock = Pins("").alone() if os.geteuid() == 0 else contextlib.nullcontext()
        with lock:
            for thing in things:
                orphans.take_away(thing, pins.HOME)


def _is_of(owner: owners.Owner, root: Path) -> bool:
    """Whether that is the engine in ``root``, by whatever path its server was told of it.

    Of a server in another mount table (``PrivateTmp`` of systemd makes one) the folder is looked up
    there.
    """
    seen_from = "" if owner.mounts == owners.owner_of(owner.root).mounts else _root_of(owner.mounts)
    # No process of that mount table is left, so only the path can be compared.
    if seen_from is None:
        return owner.root == str(root)
    with contextlib.suppress(OSError):
        return Path(f"{seen_from}{owner.root}").samefile(root)
    return False


def _root_of(mounts: int) -> str | None:
    """The way into a mount table, by a process that has it."""
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}/ns/mnt").st_ino == mounts:  # noqa: PTH116
                    return f"/proc/{name}/root"
    return None


def _parents_of_groups(names: set[str]) -> list[Path]:
    """Folders of the control group file system in which one of those groups is."""
    return sorted(
        {Path(path) for path, folders, _ in os.walk(_CGROUPS) if not names.isdisjoint(folders)}
    )


def _members(groups: Sequence[Path]) -> set[int]:
    found: set[int] = set()
    for group in groups:
        for path, _, _ in os.walk(group):
            found.update(files.numbers(Path(path) / "cgroup.procs"))
    return found


def _find_marked(marks: set[bytes]) -> set[int]:
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {pid for pid in pids if _has_mark(pid, marks)} if marks else set()


def _has_mark(pid: int, marks: set[bytes]) -> bool:
    with contextlib.suppress(OSError):
        return not marks.isdisjoint(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    return False
