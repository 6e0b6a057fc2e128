"""The engine of one machine: hands gangs to the spawner, reads the ledger, follows logs."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path

from cloud_ml import linux, timers
from cloud_ml.domain.addresses import JobSocket
from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.workloads.progress import Progress
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.abilities import (
    WHOLE_LOG,
    JobListener,
    LogView,
    RuntimeState,
    UsagePoint,
    WorkingDirectory,
)
from cloud_ml.engines.base import Capacity, Engine, JobPaths
from cloud_ml.engines.gang import Gang, GangKey
from cloud_ml.engines.local import ledger as ledgers
from cloud_ml.engines.local import probe
from cloud_ml.engines.local.cleanup import stale_processes
from cloud_ml.engines.local.environments.runtimes import LocalRuntimes
from cloud_ml.engines.local.failures import log_patterns
from cloud_ml.engines.local.files import job_files, task_reports
from cloud_ml.engines.local.files.job_metrics import JobMetrics
from cloud_ml.engines.local.isolation import sandbox
from cloud_ml.engines.local.isolation.etc import Etc
from cloud_ml.engines.local.ledger import UNCLAIMED, Ledger
from cloud_ml.engines.local.logs.following import Followers
from cloud_ml.engines.local.logs.logfile import LogReader
from cloud_ml.engines.local.logs.logview import ShownLog
from cloud_ml.engines.local.network import HOST, NONE, TENANT, gang_hosts
from cloud_ml.engines.local.network import tenants as networks
from cloud_ml.engines.local.network.job_listeners import JobListeners
from cloud_ml.engines.local.probe import Findings
from cloud_ml.engines.local.processes import usage_samples
from cloud_ml.engines.local.resolved_gang import PackageFiles, resolve
from cloud_ml.engines.local.secrets import NO_SECRET_FILES
from cloud_ml.engines.local.spawner.client import SpawnerClient
from cloud_ml.environments import compat_bytecode, evict
from cloud_ml.environments.files import clear_leftovers
from cloud_ml.environments.packages import kept
from cloud_ml.errors import Conflict, Unavailable
from cloud_ml.job_sockets import JobSockets
from cloud_ml.models import codec
from cloud_ml.objects.base import LocalFolders
from cloud_ml.process_handles import ProcessHandle

# Only a fallback: changes are normally reported by inotify and the spawner's socket. This finds
# what neither reports, such as a supervisor that was killed together with the spawner.
_POLL_S = 5.0
# Processes that were killed have this second to end. After it the pass fails and is tried again.
_LOOKS, _LOOK_S = 100, 0.01
_SAMPLES = 500
"""Of usage, for one answer."""


class LocalEngine(JobMetrics, Engine):
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
        ledger = Ledger(Path(findings.config.root))
        super().__init__(ledger, folders)
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
        self._ledger = ledger
        self._sockets = JobSockets(self._ledger.jobs)
        self._job_listeners = JobListeners(findings.config)
        self._followers = Followers(self._ledger, self._is_over)
        self._spawner = SpawnerClient(self._root, findings.config)
        self._live: set[GangKey] = set()

    async def start(self) -> None:
        self._ledger.create()
        await asyncio.to_thread(
            Etc(self._config.etc, leave=self._config.network.kept_in_etc).create
        )
        await asyncio.to_thread(self._ledger.prune)
        await asyncio.to_thread(kept.clear, self._ledger.venvs)
        await asyncio.to_thread(self._job_listeners.start)
        await asyncio.to_thread(clear_leftovers, Path(self._config.environments_home))
        await asyncio.to_thread(evict.clear_leftovers, Path(self._config.environments_home))
        await asyncio.to_thread(compat_bytecode.compile_modules)
        await self._spawner.connect()
        self._runtimes.start()

    async def close(self) -> None:
        await self.step_down()
        self.close_watches()

    async def step_down(self) -> None:
        """See ``engines.abilities.Handover``: spawner and listeners are left."""
        await self._runtimes.close()
        await self._spawner.leave()
        self._job_listeners.close()

    async def ensure(self, gang: Gang) -> None:
        if gang.key.attempt > 1:
            await asyncio.to_thread(self._ledger.bury_skipped, gang.key)
        # A repeated request ends here. If two arrive at once, the claim in the ledger decides.
        if self._ledger.gate(gang.key) is not None:
            return
        try:
            resolved = await asyncio.to_thread(resolve, gang, self._folders, self._packages)
        except OSError as error:
            raise Unavailable(
                f"the files of this server cannot be read: {error}",
                public_message="the files of this server cannot be read: "
                f"{error.strerror or type(error).__name__}",
            ) from error
        await self._spawner.ask({"ensure": codec.encode(resolved)})
        self._job_listeners.hint(gang.tenant)

    async def stop(self, key: GangKey, grace_s: float, why: Reason = Reason.CANCELLED) -> None:
        if key.attempt > 1:
            await asyncio.to_thread(self._ledger.bury_skipped, key)
        # An unclaimed gang ends with this tombstone; there is no supervisor to signal.
        if self._ledger.bury(key):
            return
        observed = self._ledger.observe(key)
        if observed is None or observed.state.over:
            return
        requested_grace_s = self._ledger.stop_requested(key)
        # A repeated request may shorten the grace time, but never extend it.
        if requested_grace_s is None or grace_s < requested_grace_s:
            self._ledger.request_stop(key, grace_s, why)
        # Signal even if the request was already there: its sender may have died before
        # signalling.
        self._wake_supervisor(key)

    async def dump_stacks(self, key: GangKey, tasks: Sequence[str]) -> None:
        """See ``engines.abilities.Stacks``."""
        observed = self._ledger.observe(key)
        if observed is None or observed.state.over:
            return
        for task in tasks:
            if "/" not in task:  # it becomes the name of a file
                await asyncio.to_thread(self._ledger.request_stacks, key, task)
        self._wake_supervisor(key)

    def restart_refusal(self) -> str:
        """Without either, nobody could tell whether processes of a task that has ended live on."""
        if self._config.bwrap or self._config.cgroups:
            return ""
        return "single tasks start again only where jobs have a sandbox or control groups"

    async def restart_task(self, key: GangKey, task: str, number: int, grace_s: float) -> None:
        """See ``engines.abilities.TaskRestarting``."""
        observed = self._ledger.observe(key)
        if observed is None or observed.state.over or self.restart_refusal():
            return
        found = next((one for one in observed.processes if one.name == task), None)
        # The report shows that this restart was done, so a repeated pass must not restart the
        # task again.
        if found is None or found.requested_restarts >= number:
            return
        await asyncio.to_thread(self._ledger.request_restart, key, task, number, grace_s)
        self._wake_supervisor(key)

    def _wake_supervisor(self, key: GangKey) -> None:
        """Have the supervisor look at the ledger. No other process that has got its number hears
        of it.
        """
        gate = self._ledger.gate(key)
        if gate is None:
            return
        handle = ProcessHandle.open(gate.pid, lambda _: ledgers.is_alive(gate))
        if handle is not None:
            with handle:
                handle.send(signal.SIGTERM)

    async def observed(self, job_uid: str) -> Sequence[ObservedGang]:
        found = []
        for attempt in self._ledger.attempts(job_uid):
            key = GangKey(job_uid, attempt)
            gang = self._ledger.observe(key)
            if gang is not None and gang.state is GangState.LOST:
                gang = await self._surely_over(key, gang)
            if gang is not None:
                found.append(gang)
                (self._live.discard if gang.state.over else self._live.add)(key)
        return found

    async def changes(self) -> AsyncIterator[str]:
        watch, news, loop = linux.Watch(), asyncio.Event(), asyncio.get_running_loop()
        arrived: list[str] = []

        def hear() -> None:
            # Read here: what is unread wakes the loop again before the waiting task has its turn,
            # and that task would look at every gang for nothing.
            arrived.extend(watch.names())
            news.set()

        try:
            # Watch before listing, so that a report that arrives in between is not missed.
            watch.arrivals(self._ledger.reports)
            loop.add_reader(watch.descriptor, hear)
            for uid in await asyncio.to_thread(self._list_unfinished):
                yield uid
            while True:
                await timers.wait_for_hint(news, _POLL_S)
                news.clear()
                await self._spawner.replace_dead()
                found = [name.rpartition(".") for name in arrived]
                arrived.clear()
                uids = {
                    gang.rpartition(".")[0]
                    for gang, dot, kind in found
                    if dot + kind in (".json", UNCLAIMED)
                }
                # A killed supervisor writes no report, so there is no event to wait for.
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
        # Ask before reading the log. Then the read below covers everything that was written
        # before the end.
        follow = follow and not self._is_over(key)
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

    async def progress(self, key: GangKey, tasks: Sequence[str]) -> Mapping[str, Progress]:
        """See ``engines.abilities.Reports``."""
        folder = self._ledger.temporary_folder(key)
        return await asyncio.to_thread(task_reports.of_tasks, folder, tasks)

    async def usage(self, key: GangKey) -> Sequence[UsagePoint]:
        """Samples of the attempt, oldest first."""
        folder = self._ledger.attempt_folder(key)
        return await asyncio.to_thread(usage_samples.latest, folder, _SAMPLES)

    def tenant_address(self, tenant: int) -> str | None:
        """Where this machine reaches ports that an organisation's jobs listen on; ``None`` if
        nowhere.

        Jobs of one organisation reach each other on their loopback.
        """
        if self._config.network.fence == TENANT:
            found = networks.address_of(self._config, tenant)
            return str(found) if found else None
        return "127.0.0.1" if self._config.network.fence == HOST else None

    def server_address(self) -> str:
        """See ``engines.abilities.JobListening``."""
        return self._job_listeners.address()

    def job_listeners(self) -> AsyncGenerator[JobListener]:
        """See ``engines.abilities.JobListening``."""
        return self._job_listeners.listeners()

    def address(self, job_uid: str, name: str) -> JobSocket:
        """See ``engines.abilities.Endpoints``; ``endpoints.JobSockets`` connects to it."""
        return JobSocket(job_uid, name)

    async def open_connection(
        self, job_uid: str, name: str, *, limit: int = 65_536
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See ``engines.abilities.Endpoints``."""
        made = self._sockets.connect(self.address(job_uid, name))
        try:
            return await asyncio.open_unix_connection(sock=made, limit=limit)
        except BaseException:
            made.close()
            raise

    def working_directory(
        self, job_uid: str, tenant: int
    ) -> AbstractContextManager[WorkingDirectory | None]:
        """The files that a job left; see ``engines.abilities.WorkingDirectories``."""
        base = self._config.tenant_uid_base
        return job_files.open_working_directory(
            self._ledger.jobs / job_uid, owner=base + tenant if base else os.geteuid()
        )

    def isolation(self) -> Mapping[str, str]:
        """Each fence and what is in force."""
        return probe.in_force(self._config)

    def missing(self) -> Sequence[str]:
        """What the machine lacks, and how to get it."""
        return self._missing

    def log_pattern_refusal(self) -> str:
        """Why patterns of restart rules cannot be looked for in logs; empty if they can."""
        confined = self._config.landlock > 0 or not self._config.bwrap
        return "" if confined else log_patterns.NOT_CONFINED

    def gang_refusal(self) -> str:
        """Tasks meet on the loopback of their organisation, or on one of their gang."""
        network = self._config.network
        if network.fence != NONE or not network.no_gangs:
            return ""
        return (
            "jobs have no network here, so tasks cannot reach each other (engine.network = none); "
            f"a network for each job takes root: {network.no_gangs}"
        )

    def secret_files_refusal(self) -> str:
        """Secrets as files lie in the memory of a sandbox: without bubblewrap there are none."""
        return "" if self._config.bwrap else NO_SECRET_FILES

    async def runtimes(self) -> Sequence[RuntimeState]:
        """Every runtime that is offered, and what of it is there."""
        return await self._runtimes.states()

    def prepare_runtime(self, name: str, version: str | None) -> AsyncIterator[str]:
        """Install a runtime unless it is there; see ``engines.abilities.Runtimes``."""
        return self._runtimes.prepare(name, version)

    async def remove_runtime(self, name: str, version: str | None) -> bool:
        """Remove what was installed; false if a job that lives uses it."""
        return await self._runtimes.remove(name, version)

    def places(self, job_uid: str, tasks: Sequence[str] = ()) -> JobPaths:
        addresses = dict.fromkeys(tasks, gang_hosts.ADDRESS)
        if self._config.bwrap:
            hosts = {name: name for name in tasks}
            return JobPaths(sandbox.STORAGE, sandbox.FDS, hosts, addresses=addresses)
        folder = self._ledger.jobs / job_uid
        return JobPaths(
            storage=str(folder / "storage"),
            fds=str(folder / "fds"),
            hosts=addresses,  # no table of names of its own
            addresses=addresses,
        )

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
        observed = self._ledger.observe(key)
        return observed is not None and observed.state.over

    async def _surely_over(self, key: GangKey, gang: ObservedGang) -> ObservedGang:
        """A gang without a supervisor is over when its last process is gone, and not before.

        Where the machine has restarted, none is left. Control groups of the same names may be those
        of others now.
        """
        report = self._ledger.read_report(key)
        if report is not None and report.state.over:
            return gang
        restarted = gang.reason is Reason.NODE_LOST
        for _ in range(_LOOKS):
            if restarted or stale_processes.end(self._ledger, self._config, key):
                self._ledger.report(gang)
                await asyncio.to_thread(stale_processes.clear, self._ledger, key)
                return gang
            await asyncio.sleep(_LOOK_S)
        raise Unavailable(f"processes of attempt {key} do not end")

    def _list_unfinished(self) -> list[str]:
        """Jobs with a gang that is not over by its report."""
        found = set()
        for report in self._ledger.reports.glob("*.json"):
            with contextlib.suppress(OSError):
                # The bytes are searched and not decoded, since there may be thousands of reports.
                # The reason of a process may match too, which costs that job one pass.
                if b'"reason":null' in report.read_bytes():
                    found.add(report.stem.rpartition(".")[0])
        return sorted(found)

    def _with_dead_supervisors(self) -> list[str]:
        """Jobs of live gangs whose supervisor is gone; the spawner usually tells first."""
        return [key.job_uid for key in self._live if self._is_over(key)]
