"""Stops the server of a data folder from another process, and ends what outlives it if the operator
wants that.

A server holds a lock on a file of its folder. So a lock that is free says that none runs, whatever
the number in the file; and the process that is signalled is one that has this file open.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import pwd
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_ml import data_folder, lock_file
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.services.kind import MODEL_SERVICE, REPLICA
from cloud_ml.domain.tensorboards.spec import TENSORBOARD
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.engines.local.cleanup.orphans import Orphan
from cloud_ml.engines.local.cleanup.teardown import Teardown
from cloud_ml.errors import CloudMlError, Forbidden, Unavailable
from cloud_ml.process_handles import (
    ProcessHandle,
    has_open,
    own_user_name,
    owner_name,
    wait_for_all,
    with_log_in,
)
from cloud_ml.settings import Settings
from cloud_ml.state.sql.lookup import find_records, has_current_schema

_KINDS: Mapping[str, Kind[Any, WorkloadStatus]] = {
    kind.name: kind for kind in (TRAIN_JOB, REPLICA, TENSORBOARD)
}
_STOP_LOCK = "stop.lock"
"""Held by a command that ends the server and everything beside it."""
_FIND_S = 5.0
_LOOK_S = 0.02
_KILL_S = 20.0


@dataclass(frozen=True)
class Survivors:
    """What outlives a server, or is left of one that was killed.

    ``jobs``, ``replicas`` and ``tensorboards`` are names for people; ``unnamed`` are the uids of those whose records
    cannot be read; ``things`` are tables, links, control groups and networks.
    """

    jobs: Sequence[str] = ()
    replicas: Sequence[str] = ()
    tensorboards: Sequence[str] = ()
    unnamed: Sequence[str] = ()
    spawner: int | None = None
    gateway: Sequence[int] = ()
    things: Sequence[Orphan] = ()

    def __bool__(self) -> bool:
        processes = self.jobs or self.replicas or self.unnamed or self.spawner or self.gateway
        return bool(processes or self.things)


class Shutdown:
    """The server of one data folder, and what outlives it.

    Raises:
        NotFound: No server has ever used the folder.
        Forbidden: It belongs to another user.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data = settings.data_dir
        self._lock_file = self._data / lock_file.NAME
        self._check_folder()
        self._engine = Teardown(self._data / "engine")

    def _check_folder(self) -> None:
        try:
            os.close(self._open())
        except FileNotFoundError:
            raise data_folder.never_used(self._data) from None
        except PermissionError:
            owner = owner_name(self._lock_file if self._lock_file.exists() else self._data)
            raise Forbidden(
                f"the data folder {self._data} belongs to the user {owner}, and this command "
                f"runs as {own_user_name()}",
                hint=f"Run this command as {owner} or as root.",
            ) from None

    def _open(self) -> int:
        return os.open(self._lock_file, os.O_RDWR | os.O_CLOEXEC)

    # ---- the server

    def server_pids(self) -> list[int]:
        """The process ids of the servers that use the folder: one, or those that share it."""
        with contextlib.closing(_Lock(self._open())) as lock:
            return [] if lock.take() else lock.holders()

    def stop_servers(self, timeout_s: float, *, kill: bool = False) -> list[int]:
        """End the servers in order; returns their process ids.

        Args:
            timeout_s: How long it may take.
            kill: End them with SIGKILL after that.

        Raises:
            Unavailable: One has not ended in time.
            Forbidden: One belongs to another user.
        """
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        stopped = self._end(self._servers(), timeout_s, kill=kill)
        # One that shares the folder has the lock a moment before its line is there. Not those
        # that have begun since: their service manager starts them again.
        late = self._started_before(began) if stopped else []
        return [*stopped, *self._end(late, timeout_s, kill=kill)]

    def _end(self, servers: Sequence[ProcessHandle], timeout_s: float, *, kill: bool) -> list[int]:
        with contextlib.ExitStack() as stack:
            handles = [stack.enter_context(handle) for handle in servers]
            for handle in handles:
                handle.send(signal.SIGTERM)
            left = wait_for_all(handles, timeout_s)
            if kill:
                for handle in left:
                    handle.send(signal.SIGKILL)
                left = wait_for_all(left, _KILL_S)
            if left:
                raise Unavailable(
                    f"the server (process {left[0].pid}) has not ended within {timeout_s:g} s",
                    hint="Wait longer with --timeout, or see its log.",
                )
            return [handle.pid for handle in handles]

    def _started_before(self, uptime_s: float) -> list[ProcessHandle]:
        """Handles of the processes that hold the lock and have run since before that time."""
        with contextlib.closing(_Lock(self._open())) as lock:
            if lock.take():
                return []
            opened = [
                ProcessHandle.open(
                    pid, lambda pid: lock.is_held_by(pid) and _start_s(pid) < uptime_s
                )
                for pid in lock.holders()
            ]
        return [handle for handle in opened if handle is not None]

    def _servers(self) -> list[ProcessHandle]:
        """Handles of the processes that hold the lock. One has the lock a moment before its number
        is in the file.

        Raises:
            Unavailable: The lock is held by a process that cannot be seen from here.
        """
        deadline = time.monotonic() + _FIND_S
        with contextlib.closing(_Lock(self._open())) as lock:
            while not lock.take():
                opened = [ProcessHandle.open(pid, lock.is_held_by) for pid in lock.holders()]
                if found := [handle for handle in opened if handle is not None]:
                    return found
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"a server uses the data folder {self._data}, but its process cannot "
                        "be seen from here",
                        hint="Run this command on the server's machine, in the same container, "
                        "as its user or as root.",
                    )
                time.sleep(_LOOK_S)
        return []

    # ---- what outlives it

    def survivors(self) -> Survivors:
        """What there is beside the server now."""
        state = self._engine.survey()
        uids = {key.job_uid for key in state.gangs}
        found = self._records(uids)
        replicas = self._titles_of_replicas(
            [each for each in found.values() if each.key.kind == REPLICA.name]
        )
        jobs = sorted(_title(each) for each in found.values() if each.key.kind == TRAIN_JOB.name)
        # Gangs whose records are unreadable or from another version.
        unnamed = sorted(uids - found.keys())
        gateway = sorted(with_log_in(self._data / "gateway"))
        boards = sorted(
            _title(each) for each in found.values() if each.key.kind == TENSORBOARD.name
        )
        return Survivors(jobs, replicas, boards, unnamed, state.spawner, gateway, state.things)

    def unknown_gangs(self) -> list[str]:
        """The uids of jobs and replicas that run and that the database lacks, as after the restore
        of an older backup. None if it cannot be read.
        """
        uids = {key.job_uid for key in self._engine.survey().gangs}
        if not uids:
            return []
        try:
            if not has_current_schema(self._settings.database_url):
                return []
            found = find_records(self._settings.database_url, _KINDS, uids)
        except CloudMlError:
            return []
        return sorted(uids - {record.key.uid for record in found})

    def _titles_of_replicas(self, replicas: Sequence[Record[Any, Any]]) -> list[str]:
        """The service of each replica, once for all replicas of it."""
        parents = {each.parent.uid for each in replicas if each.parent is not None}
        services = self._records(parents, {MODEL_SERVICE.name: MODEL_SERVICE})
        named = [
            services.get(each.parent.uid, each) if each.parent is not None else each
            for each in replicas
        ]
        return sorted({_title(each) for each in named})

    def _records(
        self, uids: set[str], kinds: Mapping[str, Kind[Any, Any]] = _KINDS
    ) -> Mapping[str, Record[Any, Any]]:
        if not uids:
            return {}
        try:
            found = find_records(self._settings.database_url, kinds, uids)
        except CloudMlError:
            return {}
        return {each.key.uid: each for each in found}

    def end_survivors(self, grace_s: float | None = None) -> None:
        """End all of it; no server can start meanwhile.

        Args:
            grace_s: Seconds that jobs have between SIGTERM and SIGKILL, instead of their own grace
                time.

        Raises:
            Conflict: A server has started meanwhile.
        """
        with self._alone():
            # End the gateway before the replicas, so that requests under way are still answered.
            self._end_gateway()
            own = (
                {}
                if grace_s is not None
                else self._records({key.job_uid for key in self._engine.survey().gangs})
            )
            usual = self._settings.engine.stop_grace_s if grace_s is None else grace_s

            def grace_of(uid: str) -> float:
                record = own.get(uid)
                return (
                    usual
                    if record is None or record.spec.workload.grace_s is None
                    else record.spec.workload.grace_s
                )

            self._engine.end(grace_of)

    @contextlib.contextmanager
    def one_at_a_time(self, waits: Callable[[], None]) -> Iterator[None]:
        """Wait until no other command ends this server; ``waits`` is called if one does.

        Both would take the lock of the server, and one would take the other for a server.
        """
        lock = os.open(self._data / _STOP_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        lock = data_folder.hold(
            self._data, hint="It was started again meanwhile: by its service manager?"
        )
        try:
            yield
        finally:
            os.close(lock)

    def _end_gateway(self) -> None:
        """Let it answer what is under way, then end it and the child that opens replicas for it."""
        folder = self._data / "gateway"

        def is_ours(pid: int) -> bool:
            return pid in set(with_log_in(folder))

        handles = [
            found
            for pid in with_log_in(folder)
            if (found := ProcessHandle.open(pid, is_ours)) is not None
        ]
        try:
            pids = {handle.pid for handle in handles}
            for handle in handles:
                # Only the gateway: its child opens connections to replicas until the gateway has
                # ended.
                if _parent(handle.pid) not in pids:
                    handle.send(signal.SIGTERM)
            for handle in wait_for_all(handles, self._settings.gateway.drain_s + _KILL_S):
                handle.send(signal.SIGKILL)
                handle.wait(_KILL_S)
        finally:
            for handle in handles:
                handle.close()


def act_as_owner(settings: Settings) -> None:
    """Where this process is root and the server is not: become its user, so that nothing is
    written as root.
    """
    path = settings.data_dir / lock_file.NAME
    if os.geteuid() != 0 or not path.exists():
        return
    uid = path.stat().st_uid
    if uid == 0:
        return
    try:
        user = pwd.getpwuid(uid)
        # Groups before the user: without root's rights they cannot be changed.
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
    except KeyError:  # a user without a name, as in a container
        os.setgroups([])
        os.setgid(path.stat().st_gid)
    os.setuid(uid)


class _Lock:
    """The lock file of a data folder, opened."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def take(self) -> bool:
        """Take the lock until this is closed; false if a server has it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def holders(self) -> list[int]:
        """The processes in the file that still run, each once."""
        return lock_file.live_holders(self._descriptor)

    def is_held_by(self, pid: int) -> bool:
        """Whether that process has the file open, and it is not this one."""
        return pid != os.getpid() and has_open(pid, os.fstat(self._descriptor))

    def close(self) -> None:
        """Give it back."""
        os.close(self._descriptor)


def _title(record: Record[Any, Any]) -> str:
    return f"{record.key.org}/{record.key.name}"


def _start_s(pid: int) -> float:
    """When a process has started, in seconds since the start of the machine; late if it has
    ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.inf
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0
