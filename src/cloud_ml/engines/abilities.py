"""What an engine may be able to do beside running gangs: each is a protocol that callers ask for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from cloud_ml.domain.addresses import Address
from cloud_ml.domain.workloads.outputs import JobFile
from cloud_ml.domain.workloads.progress import Progress
from cloud_ml.engines.gang import GangKey


@dataclass(frozen=True)
class UsagePoint:
    """What a process used at one time: cores over the last period, bytes, and counts."""

    at: datetime
    process: str
    cores: float
    memory_bytes: int
    processes: int


@runtime_checkable
class Usage(Protocol):
    """An engine that samples what processes use."""

    async def usage(self, key: GangKey) -> Sequence[UsagePoint]:
        """Samples of the attempt, oldest first; the newest few hundred."""


@runtime_checkable
class Reports(Protocol):
    """An engine that can tell what processes report of their progress."""

    async def progress(self, key: GangKey, tasks: Sequence[str]) -> Mapping[str, Progress]:
        """What each of these processes has reported, by its name. Those that have reported nothing,
        or have ended, are left out: of these, see ``ObservedProcess``.
        """


@dataclass(frozen=True)
class MetricData:
    """A piece of the file of metrics of a task: where it begins, and whether ``more`` follows.

    ``identity`` tells the file from another of its name; ``size`` is that of the whole file.
    """

    identity: str
    offset: int
    data: bytes
    more: bool
    size: int


@runtime_checkable
class MetricReports(Protocol):
    """An engine that keeps what processes report of metrics until the job is forgotten."""

    def read_metrics(
        self, key: GangKey, task: str, identity: str, offset: int, *, end: int
    ) -> MetricData | None:
        """Read on in the file that a task has written in an attempt; ``None`` without one.
        Blocking, and bounded in time and memory whatever the file is.

        It begins anew where the file is not that of ``identity``, or shorter than ``offset``. From
        ``end`` on nothing is read.
        """

    def watch_metrics(self, job_uid: str) -> None:
        """Name the job in ``metric_changes`` when its processes report the next time, and not
        again.
        """

    def unwatch_metrics(self, job_uid: str) -> None:
        """Do not."""

    def metric_changes(self) -> AsyncIterator[str]:
        """Uids of jobs that were watched and have reported."""


@dataclass(frozen=True)
class BucketFolder:
    """A folder of a bucket: the objects whose keys begin with ``prefix``."""

    bucket: str
    prefix: str


@dataclass(frozen=True)
class EventFile:
    """An event file of TensorBoard that a job has written.

    ``path`` names it within the job: ``work/logs/events…``, or a URI. ``below`` is the part of it
    that leads from the folder that was searched. ``identity`` tells it from another file of its
    name.
    """

    path: str
    below: str
    identity: str
    size: int


@dataclass(frozen=True)
class EventFiles:
    """Those that were found, why that may not be all of them, and ``recent``: the folders that were
    searched and changed last, where others may appear.
    """

    files: Sequence[EventFile] = ()
    incomplete: str = ""
    recent: Sequence[str] = ()


@dataclass(frozen=True)
class LogPart:
    """A part of the log of a task that lies in one file, open for reading.

    ``position`` is where it begins in the log: behind the position that was asked for, where the
    log has a gap. It is at ``offset`` of the file ``descriptor``, and has ``left`` bytes by now.
    ``last`` is whether the log ends with this file. It was written about ``at`` (milliseconds since
    1970).
    """

    descriptor: int
    offset: int
    left: int
    position: int
    last: bool
    at: int


@runtime_checkable
class MetricFiles(Protocol):
    """An engine that lends files of jobs in which points may be. Blocking; each call is bounded in
    time and memory, whatever the files are. No link is followed, and no pipe or device is opened.
    """

    def event_files(
        self, job_uid: str, folders: Sequence[BucketFolder], since: datetime
    ) -> EventFiles:
        """Event files that were written after ``since``, in the working folder of a job and in these
        folders of buckets.
        """

    def open_event_file(
        self, job_uid: str, folders: Sequence[BucketFolder], path: str
    ) -> AbstractContextManager[int | None]:
        """A file that ``event_files`` has named, open for reading; ``None`` if it is gone or has
        become something else.
        """

    def open_log(
        self, key: GangKey, task: str, position: int
    ) -> AbstractContextManager[LogPart | None]:
        """What was written to the log of a task from ``position`` on; ``None`` if that is nothing."""

    def watch_files(
        self,
        job_uid: str,
        folders: Sequence[BucketFolder],
        *,
        recent: Sequence[str] = (),
        grown: Sequence[str] = (),
        log: GangKey | None = None,
    ) -> None:
        """Name the job in ``file_changes``, once, when a name appears in its working folder or in
        one that ``event_files`` has named as ``recent``, when a file appears or grows beside one of
        the event files ``grown``, or when a log of the attempt ``log`` grows. It replaces what was
        watched of the job before.

        What cannot be watched is left out: look at the files now and then all the same.
        """

    def unwatch_files(self, job_uid: str) -> None:
        """Do not."""

    def file_changes(self) -> AsyncIterator[str]:
        """Uids of jobs that were watched and whose files have changed."""


@dataclass(frozen=True)
class LogView:
    """What of a log is shown.

    Without ``installation``, what the user's code wrote and nothing before or after it; with
    ``timestamps``, a time in UTC before each line, in 25 bytes.
    """

    installation: bool = True
    timestamps: bool = False


WHOLE_LOG = LogView()


ALL_TASKS = "all"
"""The log of a gang of several processes that has the lines of all. Before each stands the
process's name, as in ``[worker-1] step 3``.
"""


@runtime_checkable
class LogTimes(Protocol):
    """An engine that knows when output was written."""

    async def written_before(
        self, key: GangKey, process: str, moment: datetime, view: LogView = WHOLE_LOG
    ) -> int:
        """How many bytes ``logs`` gives that are older than ``moment``; rather fewer where that
        is not exact.
        """


@runtime_checkable
class Isolation(Protocol):
    """An engine that can tell which fences are in force on its machine."""

    def isolation(self) -> Mapping[str, str]:
        """Fence (sandbox, user, limits, network, system calls) to what is in force."""

    def missing(self) -> Sequence[str]:
        """Sentences: what the machine lacks, and how to get it."""


@runtime_checkable
class SecretFiles(Protocol):
    """An engine that can tell whether jobs can get secrets as files."""

    def secret_files_refusal(self) -> str:
        """Why jobs cannot have them on this machine, and what helps; empty if they can."""


@runtime_checkable
class Endpoints(Protocol):
    """An engine whose jobs can be called.

    A job that listens makes a Unix socket in its working folder and gives it a ``name``. The engine
    knows how others reach it.
    """

    def address(self, job_uid: str, name: str) -> Address:
        """Where the job is called, for a process that connects by itself. Does not wait.

        It stays the same while an attempt runs. That somebody listens there is not promised.

        Raises:
            Unavailable: The job has no such address now.
        """

    async def open_connection(
        self, job_uid: str, name: str, *, limit: int = 65_536
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the job. ``limit`` is that of ``asyncio.StreamReader``, in bytes.

        Raises:
            Unavailable: Nobody answers there now.
        """


@dataclass(frozen=True)
class JobListener:
    """A listening socket that jobs reach: those of an organisation, by its number, or all jobs with
    ``None``. Without a socket, the network is gone. ``sandboxed`` says that a job sees no processes
    but its own. Where the network is that of one job, ``network`` tells it from others of the
    organisation, and ``job_uid`` is the job; both are empty elsewhere.
    """

    tenant: int | None
    socket: socket.socket | None
    sandboxed: bool = False
    network: str = ""
    job_uid: str = ""


@runtime_checkable
class JobListening(Protocol):
    """An engine whose jobs can call the server."""

    def server_address(self) -> str:
        """``HOST:PORT`` at which jobs find the server; empty if they have no way to it."""

    def job_listeners(self) -> AsyncGenerator[JobListener]:
        """Sockets on which jobs call, as their networks come and go. The caller closes them.

        Who asks again gets all of them anew, once the generator before is closed.

        Raises:
            OSError: Not even these can be had now.
        """


@runtime_checkable
class Stacks(Protocol):
    """An engine that can show where processes are."""

    async def dump_stacks(self, key: GangKey, tasks: Sequence[str]) -> None:
        """Have the Python processes of these tasks write the stacks of all their threads to their
        logs. They run on.

        Returns at once. A task that does not run, and a program that cannot, is left alone.
        """


@runtime_checkable
class TaskRestarting(Protocol):
    """An engine that starts single processes again when somebody wants it."""

    def restart_refusal(self) -> str:
        """Why it cannot, and what helps; empty if it can."""

    async def restart_task(self, key: GangKey, task: str, number: int, grace_s: float) -> None:
        """End a process with SIGTERM, then SIGKILL after ``grace_s``, and start it again alone.

        Its restart ``number`` of those that were asked for: asked for twice, it happens once (see
        ``ObservedProcess.requested_restarts``). Returns at once. The request outlives the server and
        ends with the attempt. A process that has ended is left alone; one that is about to start
        again does so now. A process that is ended for it costs nothing of what ``Gang.restarts``
        allows; a failure before it does.
        """


@runtime_checkable
class Gangs(Protocol):
    """An engine that can tell whether jobs of several processes can run."""

    def gang_refusal(self) -> str:
        """Why processes of a job could not reach each other, and what helps; empty if they can."""


class WorkingDirectory(Protocol):
    """The working directory of a job that has ended. No link is followed, and no pipe or device
    is opened. Blocking.
    """

    def files(self, enters: Callable[[bytes], bool]) -> Iterator[JobFile]:
        """New and changed files, in no order. Files that were sent and did not change are left out.

        A link to a file of the directory is given as that file. Other links, and folders that
        cannot be walked, are given with an ``obstacle``. ``enters`` is asked with the path of each
        folder whether to look inside.
        """

    def read(self, file: JobFile) -> Iterator[bytes]:
        """A file's bytes, at most ``file.size`` of them. One that is gone or has become
        something else has none.
        """


@runtime_checkable
class WorkingDirectories(Protocol):
    """An engine that keeps the working directory of a job until the job is forgotten."""

    def working_directory(
        self, job_uid: str, tenant: int
    ) -> AbstractContextManager[WorkingDirectory | None]:
        """The directory of a job whose gangs are over, open meanwhile; ``None`` if there is none.

        ``tenant`` is the number of the organisation: files of other users are given with an
        ``obstacle``.
        """


@dataclass(frozen=True)
class RuntimeState:
    """A runtime that jobs may ask for, and what of it is there.

    ``python`` is the interpreter's full version, empty while it is not there. A runtime that is not
    ``ready`` is installed when a job first needs it; ``size_bytes`` is what its packages take on
    the disk.
    """

    name: str
    version: str
    summary: str = ""
    default: bool = False
    aliases: Sequence[str] = ()
    accepts: Sequence[str] = ()
    python: str = ""
    ready: bool = False
    size_bytes: int = 0
    base_memory: int = 0
    requires: Sequence[str] = ()
    packages: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: Sequence[str] = ()
    preload: Sequence[str] = ()


@runtime_checkable
class Handover(Protocol):
    """An engine whose machine part only one of the servers that share it may hold."""

    async def step_down(self) -> None:
        """Leave it to another server, which may lead from now on. ``Engine.start`` takes it again.

        Gangs run on.
        """


@runtime_checkable
class Runtimes(Protocol):
    """An engine that keeps runtimes and can prepare them before a job asks."""

    async def runtimes(self) -> Sequence[RuntimeState]:
        """Every runtime that is offered."""

    def prepare_runtime(self, name: str, version: str | None) -> AsyncIterator[str]:
        """Install a runtime unless it is there; lines for people, as they come, and empty ones now
        and then.

        Asking twice installs once: who comes later sees what the first sees, from the beginning. It
        goes on when nobody listens any more.

        Raises:
            Unavailable: It cannot be made; the message says why.
        """

    async def remove_runtime(self, name: str, version: str | None) -> bool:
        """Remove what was installed; false if a job that lives uses it."""
