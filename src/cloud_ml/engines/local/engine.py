"""The engine of one machine: hands gangs to the spawner, reads the ledger, follows logs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

from cloud_ml import linux, timers
from cloud_ml.daemons import Line, Resident
from cloud_ml.domain.addresses import JobSocket
from cloud_ml.domain.observed import ObservedGang
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.base import (
    WHOLE_LOG,
    Capacity,
    Engine,
    Gang,
    GangKey,
    JobPaths,
    LogView,
    RuntimeState,
    UsagePoint,
    WorkingDirectory,
)
from cloud_ml.engines.local import (
    job_files,
    probe,
    proctree,
    sandbox,
    stale_processes,
)
from cloud_ml.engines.local import ledger as ledgers
from cloud_ml.engines.local.etc import Etc
from cloud_ml.engines.local.following import Followers
from cloud_ml.engines.local.ledger import UNCLAIMED, Ledger
from cloud_ml.engines.local.logfile import LogReader
from cloud_ml.engines.local.logview import ShownLog
from cloud_ml.engines.local.network import HOST, TENANT
from cloud_ml.engines.local.network import tenants as networks
from cloud_ml.engines.local.probe import Findings
from cloud_ml.engines.local.resolved_gang import PackageFiles, resolve
from cloud_ml.engines.local.runtimes import LocalRuntimes
from cloud_ml.engines.local.secrets import NO_SECRET_FILES
from cloud_ml.engines.local.spawner.requests import SOCKET_NAME, TOKEN_NAME
from cloud_ml.environments import evict
from cloud_ml.environments.files import clear_leftovers
from cloud_ml.environments.packages import kept
from cloud_ml.errors import Conflict, Unavailable
from cloud_ml.job_sockets import JobSockets
from cloud_ml.models import codec
from cloud_ml.objects.base import LocalFolders

_POLL_S = 5.0
_ANSWER_LIMIT_S = 30.0
_LIMIT = 1 << 20
_LOOKS, _LOOK_S = 100, 0.01


class LocalEngine(Engine):
    """Gangs on this machine, outliving the server.

    Args:
        findings: What the machine gives (see ``probe``).
        folders: Knows the folders of buckets. Without it, gangs that mount a bucket are refused.
        packages: Knows the files of trainers. Without it, gangs with a trainer are refused.
        layers_limit_bytes: What installed packages may take before unused ones go; 0 means no
            limit.
        tidy_s: How often that is looked at.
    """

    def __init__(
        self,
        findings: Findings,
        *,
        folders: LocalFolders | None = None,
        packages: PackageFiles | None = None,
        layers_limit_bytes: int = 0,
        tidy_s: float = 600.0,
    ) -> None:
        self._folders = folders
        self._packages = packages
        self._config = findings.config
        self._missing = findings.missing
        self._defaults = findings.defaults
        self._cpu_overcommit = findings.cpu_overcommit
        self._runtimes = LocalRuntimes(
            findings.config, limit_bytes=layers_limit_bytes, tidy_s=tidy_s
        )
        self._root = Path(findings.config.root)
        self._ledger = Ledger(self._root)
        self._sockets = JobSockets(self._ledger.jobs)
        self._followers = Followers(self._ledger, self._is_over)
        self._spawner = Resident(
            "spawner",
            "cloud_ml.engines.local.spawner.main",
            self._root,
            SOCKET_NAME,
            "spawner.log",
            "the spawner cannot start the attempt",
            _LIMIT,
            _ANSWER_LIMIT_S,
        )
        self._line: Line | None = None
        self._token = ""
        self._lock = asyncio.Lock()
        self._live: set[GangKey] = set()

    async def start(self) -> None:
        self._ledger.create()
        await asyncio.to_thread(
            Etc(self._config.etc, leave=self._config.network.kept_in_etc).create
        )
        await asyncio.to_thread(self._ledger.prune)
        await asyncio.to_thread(kept.clear, self._ledger.venvs)
        await asyncio.to_thread(clear_leftovers, Path(self._config.environments_home))
        await asyncio.to_thread(evict.clear_leftovers, Path(self._config.environments_home))
        async with self._lock:
            await self._connect()
        self._runtimes.start()

    async def close(self) -> None:
        await self._runtimes.close()
        async with self._lock:
            with contextlib.suppress(OSError, EOFError, Unavailable):
                await self._exchange({"retire_if_idle": True})
            self._disconnect()

    async def ensure(self, gang: Gang) -> None:
        if self._ledger.gate(gang.key) is not None:
            return
        try:
            resolved = await asyncio.to_thread(resolve, gang, self._folders, self._packages)
        except OSError as error:
            raise Unavailable(f"the files of this server cannot be read: {error}") from error
        await self._request({"ensure": codec.encode(resolved)})

    async def stop(self, key: GangKey, grace_s: float) -> None:
        if self._ledger.bury(key):
            return
        seen = self._ledger.observe(key)
        if seen is None or seen.state.over:
            return
        asked = self._ledger.stop_requested(key)
        if asked is None or grace_s < asked:
            self._ledger.request_stop(key, grace_s)
        gate = self._ledger.gate(key)
        if gate is not None and ledgers.is_alive(gate):
            proctree.send(gate.pid, 15)

    async def observed(self, job_uid: str) -> Sequence[ObservedGang]:
        found = []
        for attempt in self._ledger.attempts(job_uid):
            key = GangKey(job_uid, attempt)
            gang = self._ledger.observe(key)
            if gang is not None and gang.reason is Reason.SUPERVISOR_LOST:
                gang = await self._surely_over(key, gang)
            if gang is not None:
                found.append(gang)
                (self._live.discard if gang.state.over else self._live.add)(key)
        return found

    async def changes(self) -> AsyncIterator[str]:
        watch, news, loop = linux.Watch(), asyncio.Event(), asyncio.get_running_loop()
        try:
            watch.arrivals(self._ledger.reports)
            loop.add_reader(watch.descriptor, news.set)
            for uid in await asyncio.to_thread(self._unfinished):
                yield uid
            while True:
                await timers.hinted(news, _POLL_S)
                news.clear()
                found = (name.rpartition(".") for name in watch.names())
                uids = {
                    gang.rpartition(".")[0]
                    for gang, dot, kind in found
                    if dot + kind in (".json", UNCLAIMED)
                }
                for uid in uids or self._with_dead_supervisors():
                    yield uid
        finally:
            loop.remove_reader(watch.descriptor)
            watch.close()

    async def forget(self, job_uid: str) -> None:
        for gang in await self.observed(job_uid):
            if not gang.state.over:
                raise Conflict(f"attempt {gang.attempt} of {job_uid} is not over")
        await asyncio.to_thread(self._ledger.forget, job_uid)

    async def log_streams(self, job_uid: str) -> Sequence[tuple[int, str]]:
        streams = []
        for attempt in self._ledger.attempts(job_uid):
            folder = self._ledger.log_folder(GangKey(job_uid, attempt))
            with contextlib.suppress(FileNotFoundError):
                files = os.listdir(folder)  # noqa: PTH208 - for each answer
                heads = [
                    file[: -len(".log")]
                    for file in files
                    if file.endswith(".log") and ".tail-" not in file
                ]
                streams += [(attempt, name) for name in sorted(heads)]
        return streams

    async def logs(
        self,
        key: GangKey,
        process: str,
        *,
        lines: int | None = None,
        follow: bool = False,
        view: LogView = WHOLE_LOG,
    ) -> AsyncIterator[bytes]:
        folder = self._ledger.log_folder(key)
        reader, shown = (
            LogReader(folder, process),
            None if view == WHOLE_LOG else ShownLog(folder, process, view),
        )
        follow = follow and not self._is_over(
            key
        )  # first: what was written before that is then read below
        if lines is not None:
            first, end = (0, math.inf) if shown is None else shown.bounds()
            await asyncio.to_thread(reader.skip_to_last_lines, lines, end)
            reader.position = (
                int(max(reader.position, first)) if first < math.inf else reader.position
            )
        position = reader.position
        async with contextlib.aclosing(
            self._read_on(key, process, reader, follow=follow)
        ) as chunks:
            async for chunk in chunks:
                data = chunk if shown is None else shown.select(position, reader.position, chunk)
                position = reader.position
                if data:
                    yield data

    async def _read_on(
        self, key: GangKey, process: str, reader: LogReader, *, follow: bool
    ) -> AsyncGenerator[bytes]:
        while chunk := reader.read():
            yield chunk
        if follow:
            async with contextlib.aclosing(self._followers.follow(key, process, reader)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def written_before(
        self, key: GangKey, process: str, moment: datetime, view: LogView = WHOLE_LOG
    ) -> int:
        """To the second. ``view`` is without times."""
        folder = self._ledger.log_folder(key)
        older = await asyncio.to_thread(LogReader(folder, process).skip_to, moment.timestamp())
        first, end = ShownLog(folder, process, view).bounds()
        return int(max(0, min(older, end) - first)) if first < math.inf else 0

    async def usage(self, key: GangKey) -> Sequence[UsagePoint]:
        """Samples of the attempt, oldest first."""
        record = self._ledger.attempt_folder(key) / "usage.jsonl"
        try:
            lines = record.read_text("utf-8").splitlines()[-500:]
        except FileNotFoundError:
            return []
        return [codec.decode(UsagePoint, json.loads(line)) for line in lines]

    def tenant_address(self, tenant: int) -> str | None:
        """Where this machine reaches ports that an organisation's jobs listen on; ``None`` if
        nowhere.

        Jobs of one organisation reach each other on their loopback.
        """
        if self._config.network.fence == TENANT:
            found = networks.address_of(self._config, tenant)
            return str(found) if found else None
        return "127.0.0.1" if self._config.network.fence == HOST else None

    def address(self, job_uid: str, name: str) -> JobSocket:
        """See ``engines.base.Endpoints``; ``endpoints.JobSockets`` connects to it."""
        return JobSocket(job_uid, name)

    async def open_connection(
        self, job_uid: str, name: str, *, limit: int = 65_536
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See ``engines.base.Endpoints``."""
        made = self._sockets.connect(self.address(job_uid, name))
        try:
            return await asyncio.open_unix_connection(sock=made, limit=limit)
        except BaseException:
            made.close()
            raise

    def working_directory(
        self, job_uid: str, tenant: int
    ) -> AbstractContextManager[WorkingDirectory | None]:
        """The files that a job left; see ``engines.base.WorkingDirectories``."""
        base = self._config.tenant_uid_base
        return job_files.opened(
            self._ledger.jobs / job_uid, owner=base + tenant if base else os.geteuid()
        )

    def isolation(self) -> Mapping[str, str]:
        """Each fence and what is in force."""
        return probe.in_force(self._config)

    def missing(self) -> Sequence[str]:
        """What the machine lacks, and how to get it."""
        return self._missing

    def secret_files_refusal(self) -> str:
        """Secrets as files lie in the memory of a sandbox: without bubblewrap there are none."""
        return "" if self._config.bwrap else NO_SECRET_FILES

    async def runtimes(self) -> Sequence[RuntimeState]:
        """Every runtime that is offered, and what of it is there."""
        return await self._runtimes.states()

    def prepare_runtime(self, name: str, version: str | None) -> AsyncIterator[str]:
        """Install a runtime unless it is there; see ``engines.base.Runtimes``."""
        return self._runtimes.prepare(name, version)

    async def remove_runtime(self, name: str, version: str | None) -> bool:
        """Remove what was installed; false if a job that lives uses it."""
        return await self._runtimes.remove(name, version)

    def places(self, job_uid: str) -> JobPaths:
        if self._config.bwrap:
            return JobPaths(storage=sandbox.STORAGE, fds=sandbox.FDS)
        folder = self._ledger.jobs / job_uid
        return JobPaths(storage=str(folder / "storage"), fds=str(folder / "fds"))

    async def capacity(self) -> Capacity:
        pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return Capacity(
            cpu_millis=1000 * len(os.sched_getaffinity(0)),
            memory_bytes=pages * page,
            defaults=self._defaults,
            cpu_overcommit=self._cpu_overcommit,
        )

    # ---- private

    def _is_over(self, key: GangKey) -> bool:
        seen = self._ledger.observe(key)
        return seen is not None and seen.state.over

    async def _surely_over(self, key: GangKey, gang: ObservedGang) -> ObservedGang:
        """A gang without a supervisor is over when its last process is gone, and not before."""
        report = self._ledger.read_report(key)
        if report is not None and report.state.over:
            return gang
        for _ in range(_LOOKS):
            if stale_processes.end(self._ledger, self._config, key):
                self._ledger.report(gang)
                await asyncio.to_thread(stale_processes.clear, self._ledger, key)
                return gang
            await asyncio.sleep(_LOOK_S)
        raise Unavailable(f"processes of attempt {key} do not end")

    def _unfinished(self) -> list[str]:
        """Jobs with a gang that is not over by its report."""
        found = set()
        for report in self._ledger.reports.glob("*.json"):
            with contextlib.suppress(OSError):
                if b'"reason":null' in report.read_bytes():
                    found.add(report.stem.rpartition(".")[0])
        return sorted(found)

    def _with_dead_supervisors(self) -> list[str]:
        """Jobs of live gangs whose supervisor is gone; the spawner usually tells first."""
        return [key.job_uid for key in self._live if self._is_over(key)]

    async def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        async with self._lock:
            for last in (False, True):
                try:
                    return await self._exchange(request)
                except (OSError, EOFError) as error:
                    self._disconnect()
                    if last:
                        raise Unavailable(
                            f"the spawner of this machine does not answer: {error}"
                        ) from error
                    await self._connect()
            raise AssertionError

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._line is None:
            raise EOFError("not connected")
        return await self._line.exchange(request)

    async def _connect(self) -> None:
        """Find the spawner of a predecessor, or start one. One with another configuration is
        replaced.
        """
        wanted = codec.encode(self._config)
        with contextlib.suppress(OSError, EOFError):
            self._line = await self._open()
            if (await self._exchange({}))["config"] == wanted:
                return
            await self._exchange({"retire": True})
            self._disconnect()
        await asyncio.to_thread(self._spawner.start, json.dumps(wanted))
        self._line = await self._open()

    async def _open(self) -> Line:
        with contextlib.suppress(FileNotFoundError):  # one of an older release
            self._token = (self._root / TOKEN_NAME).read_text("ascii")
        return await self._spawner.open(self._token)

    def _disconnect(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
