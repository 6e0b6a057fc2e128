"""The contract of an engine. ``cloud_ml.testing.engine.EngineContract`` is the same in code.

An engine runs **gangs** (the processes of one attempt of one job) and reports what is. Every verb
is idempotent, "already gone" is success, and a fresh engine object sees what its predecessor
started. In particular:

====================================  ============================================================
situation                             what holds
====================================  ============================================================
``ensure`` twice, from anywhere       the gang is started once: an attempt is claimed exclusively
``stop`` before ``ensure``            a tombstone stands; the gang never starts
a bucket of ``mounts`` is not there   ``Unavailable``: it was removed since the gang was planned
a bucket goes while the gang stages   the gang starts without it
the trainer's file is not there       no process starts; the attempt ends as ``TrainerNotFound``
``stop`` while it stages or runs      every process is gone soon after ``grace``; state ``Exited``
``stop`` after the end                nothing happens
the server dies                       the gang runs on; its end is told when the server is back
the gang's supervisor dies            its processes die with it; state ``Lost``
files outside the working directory   named at the end in ``unsaved_files``, if it can look
the machine restarts                  state ``Lost``, reason ``NodeLost``
``forget``                            logs and folders go; the attempt still cannot start again
a process of a gang listens           it is reached at its ``address``, also after a server's restart,
                                      if the engine has ``Endpoints``
nobody listens                        ``Unavailable``; no other job answers
====================================  ============================================================
"""

from __future__ import annotations

import abc
import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from cloud_ml.domain.addresses import Address
from cloud_ml.domain.observed import ObservedGang
from cloud_ml.domain.workloads.outputs import JobFile
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import NO_DEFAULT_LIMITS, DefaultLimits


@dataclass(frozen=True)
class GangKey:
    """One attempt of one job."""

    job_uid: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.job_uid}.{self.attempt}"


@dataclass(frozen=True)
class Mount:
    """A bucket, seen by the job as the folder ``target``.

    How its objects come to be there is up to the engine.
    """

    bucket: str
    target: str
    writable: bool


@dataclass(frozen=True)
class TrainerSource:
    """The user's package: a file that the platform keeps by the digest of its bytes.

    ``digest`` is its SHA-256 in hex. ``name`` is the file's name, whose ending tells the format.
    How it comes to the processes is up to the engine. With a ``problem`` there is no such file, and
    the attempt ends with this sentence and the ``reason``.
    """

    digest: str
    name: str
    problem: str = ""
    reason: Reason = Reason.TRAINER_NOT_FOUND


@dataclass(frozen=True)
class EnvironmentPlan:
    """What the processes need around them; the engine makes it or finds it made.

    Without a ``trainer`` the command runs in the bare runtime. ``framework`` ``None`` means: find
    out from the code. ``requires`` is installed beside what the trainer requires.
    """

    trainer: TrainerSource | None = None
    framework: str | None = None
    framework_version: str | None = None
    module: str | None = None
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProcessPlan:
    """One process of the gang.

    ``command`` is complete but for the interpreter: a leading ``"python"`` is replaced by the
    environment's. ``memory_bytes`` is what the user asked for; the runtime's own need is added.
    ``cpu_millis`` is a limit, ``cpu_request_millis`` the share of a process without one.
    ``output_path`` is passed to the code with the flag ``--output_path``, if the module's file
    defines that flag.
    """

    role: str
    index: int
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    output_path: str = ""
    cpu_request_millis: int | None = None

    @property
    def name(self) -> str:
        """Such as ``worker-1``; names the log."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class JobSecret:
    """A secret for the processes of a gang: the file ``/run/secrets/NAME``, or with ``variable`` a
    variable.

    ``data`` is the value in base64. It reaches the processes through memory only: no engine writes
    it to a disk.
    """

    name: str
    variable: str = ""
    data: str = field(default="", repr=False)

    @property
    def value(self) -> bytes:
        """The value itself."""
        return base64.b64decode(self.data)


@dataclass(frozen=True)
class Gang:
    """Everything an engine needs to run one attempt. ``tenant`` is the organisation's number.

    ``network`` is ``host`` (the machine's), ``tenant`` (the organisation's own) or ``none``.

    ``prepare_command`` and ``finish_command`` are shell lines run before and after the user's code,
    with the same limits; the latter after a good end, which for a gang that ``serves`` is to be
    stopped. It then has the time that the stop grants, once more. ``wall_time_s`` bounds the time
    from the first process's start, ``disk_bytes`` what the attempt keeps in folders of its own.
    ``grace_s`` is the time between SIGTERM and SIGKILL when a limit, or the end of another process
    of the gang, ends it; ``None`` means the engine's own.
    """

    key: GangKey
    tenant: int
    processes: tuple[ProcessPlan, ...]
    environment: EnvironmentPlan = field(default_factory=EnvironmentPlan)
    mounts: tuple[Mount, ...] = ()
    prepare_command: str | None = None
    finish_command: str | None = None
    serves: bool = False
    wall_time_s: int | None = None
    disk_bytes: int | None = None
    grace_s: float | None = None
    network: str = "host"
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[JobSecret, ...] = ()


@dataclass(frozen=True)
class Capacity:
    """What the engine has in all. ``gpus`` counts devices.

    ``defaults`` are for work that names no limits. The processors may be promised
    ``cpu_overcommit`` times by limits; 0 for any number of times.
    """

    cpu_millis: int
    memory_bytes: int
    gpus: int = 0
    defaults: DefaultLimits = NO_DEFAULT_LIMITS
    cpu_overcommit: float = 0.0


@dataclass(frozen=True)
class JobPaths:
    """Where things will be for the processes of a gang, known before it starts.

    ``storage`` is the folder under which each bucket appears by its name; ``fds`` is where the
    job's own bucket appears.
    """

    storage: str
    fds: str
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)


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


@dataclass(frozen=True)
class LogView:
    """What of a log is shown.

    Without ``installation``, what the user's code wrote and nothing before or after it; with
    ``timestamps``, a time in UTC before each line, in 25 bytes.
    """

    installation: bool = True
    timestamps: bool = False


WHOLE_LOG = LogView()


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


class Engine(abc.ABC):
    """Runs gangs and reports what is. See the table at the top of the module."""

    async def start(self) -> None:
        """Get ready; what a predecessor left running is found again."""

    async def close(self) -> None:
        """Let go of everything but the gangs, which run on."""

    @abc.abstractmethod
    async def ensure(self, gang: Gang) -> None:
        """Start the gang unless this attempt was started or stopped before.

        Returns when the hand-over is safe: from then on the gang starts even if the server dies.

        Raises:
            Unavailable: The engine cannot take it now, or a bucket is gone; nothing was started.
        """

    @abc.abstractmethod
    async def stop(self, key: GangKey, grace_s: float) -> None:
        """End the gang: SIGTERM, then SIGKILL after ``grace_s``. Returns at once.

        A gang that is not claimed yet never will be.
        """

    @abc.abstractmethod
    async def observed(self, job_uid: str) -> Sequence[ObservedGang]:
        """Every attempt of the job that the engine knows of, as it is now."""

    @abc.abstractmethod
    def changes(self) -> AsyncIterator[str]:
        """Uids of jobs whose gangs may have changed: first those with a gang that lives, then as it
        happens.

        A hint that may come late or twice; callers also look again by themselves.
        """

    @abc.abstractmethod
    async def forget(self, job_uid: str) -> None:
        """Drop logs, folders and findings of a job whose gangs are over.

        Raises:
            Conflict: A gang of it is not over.
        """

    @abc.abstractmethod
    async def log_streams(self, job_uid: str) -> Sequence[tuple[int, str]]:
        """(attempt, process name) of every log that is kept, in the order they began."""

    @abc.abstractmethod
    def logs(
        self,
        key: GangKey,
        process: str,
        *,
        lines: int | None = None,
        follow: bool = False,
        view: LogView = WHOLE_LOG,
    ) -> AsyncIterator[bytes]:
        """A process's output in chunks.

        Args:
            key: Which attempt.
            process: The process's name, such as ``master-0``.
            lines: Only this many last lines.
            follow: Go on until the gang is over and all of its output was given.
            view: What of it.
        """

    @abc.abstractmethod
    def places(self, job_uid: str) -> JobPaths:
        """Where things will be for the processes of this job's gangs."""

    @abc.abstractmethod
    async def capacity(self) -> Capacity:
        """What the engine has in all."""
