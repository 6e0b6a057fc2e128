"""A gang: the processes of one attempt of one job, as they are handed to an engine."""

from __future__ import annotations

import base64
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from cloud_ml.domain.workloads.gangs import NO_RESTARTS, TaskRestarts
from cloud_ml.domain.workloads.hangs import IDLE_CORES
from cloud_ml.domain.workloads.reasons import Reason

OWN_LOOPBACK = "CLOUDML_OWN_LOOPBACK"
"""Set where no other process reaches what listens on the loopback."""


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
    defines that flag. It may listen on ``ports``, which no other job has.
    """

    role: str
    index: int
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    output_path: str = ""
    cpu_request_millis: int | None = None
    ports: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Such as ``worker-1``; names the log, and is its host name in a gang of several."""
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


_BARE = "the bare runtime"


_CLUSTER = "With --recipe cluster, every task gets the names and ports of all tasks."


@dataclass(frozen=True)
class Variant:
    """What is different for a gang whose code was found to be of ``framework``, in a runtime whose
    version begins with ``version``.

    ``environments`` has further variables for each process by its name. ``completes`` and
    ``restarts`` are as in ``Gang``. If it is ``refused``, no process starts, and this says why.
    """

    framework: str
    version: str = ""
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    completes: tuple[str, ...] = ()
    restarts: TaskRestarts = NO_RESTARTS
    refused: str = ""

    def fits(self, runtime: str) -> bool:
        """Whether it is for a runtime such as ``tensorflow 2.21``. Without a ``framework``, it is
        for every one.
        """
        name, _, version = runtime.partition(" ")
        if self.framework not in ("", name):
            return False
        return not self.version or f"{version}.".startswith(f"{self.version}.")


@dataclass(frozen=True)
class ArrayTasks:
    """Equal tasks that differ by their ``indices``.

    The ``variables`` hold the index. The variables ``folders``, where they are set, are paths of
    folders; each task has its own below them.
    """

    indices: tuple[int, ...]
    variables: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def plans(self, every: ProcessPlan) -> Iterator[ProcessPlan]:
        """The process of each index; ``every`` is the plan for all of them."""
        shared = dict(every.environment)
        folders = [name for name in self.folders if name in shared]
        for index in self.indices:
            environment = dict.fromkeys(self.variables, str(index))
            environment |= {name: f"{shared[name]}/{every.role}-{index}" for name in folders}
            yield replace(every, index=index, environment=ChainMap(environment, shared))


@dataclass(frozen=True)
class Gang:
    """Everything an engine needs to run one attempt. ``tenant`` is the organisation's number.

    ``network`` is ``host`` (the machine's), ``tenant`` (the organisation's own) or ``none``. With
    ``none``, processes that look for each other share a network that leads nowhere.

    One that is ``offline`` needs no network but to be staged. Where the engine can, each of its
    processes has a loopback that no other process shares, and nothing else. It then finds the
    variable ``OWN_LOOPBACK``, and may listen there.

    ``prepare_command`` and ``finish_command`` are shell lines run before and after the user's code,
    with the same limits; the latter after a good end, which for a gang that ``serves`` is to be
    stopped. It then has the time that the stop grants, once more. ``wall_time_s`` bounds the time
    from the first process's start, ``disk_bytes`` what the attempt keeps in folders of its own.
    ``grace_s`` is the time between SIGTERM and SIGKILL when a limit, or the end of another process
    of the gang, ends it; ``None`` means the engine's own.

    A gang of several processes starts when all of them can. Each finds the others under their
    names, in whatever network it is. The gang has completed when each process in ``completes`` has
    ended well (the first process, if that is empty); the others are stopped then. Those in
    ``stopped_last`` get SIGTERM when all others have ended, or when the last quarter of the grace
    time begins, at most five seconds before its end. Where there are
    ``variants``, the one that fits the found runtime applies. If none fits, no process starts and
    the reason is ``NoDistributedRecipe``.

    Where one of the ``ports`` of its processes is in use already, no process starts and the reason
    is ``PortTaken``.

    A process in ``restarts`` that fails starts again alone, while the others run on. No process of
    its predecessor lives then. It finds the newest complete checkpoint in ``makes``, if there is
    one, in ``CLOUDML_RESTORE_FROM``.

    A gang hangs when every process that is awaited (see ``domain.workloads.hangs``) has given no
    sign of life for ``hang_s``: no output, no reported progress, and less processor time than
    ``idle_cores``, which each process may use to see that there is nothing to do. They then
    get SIGABRT, and SIGKILL after the grace time, and have ended as ``Hung``. In a gang with
    ``busy_waits``, processes wait for each other in busy loops: once one of them has reported
    progress, processor time is no sign of life.

    At most ``parallel`` of its processes live at a time; ``None`` means all of them. The next one
    starts when nothing lives any more of one that has ended. ``max_failed`` may fail for good; with
    one more, the gang has failed, and the others are stopped. A gang of an ``array`` has one plan
    for all tasks in ``processes``, and may be large. ``tasks`` has a plan for each. An ``elastic``
    gang is one of several, also in an attempt that has a single process.

    The processes of the others belong to ``launcher``, if there is one, as ``mpiexec`` starts
    those of MPI: it fails when one of them does. Where it fails after another task ran out of
    memory, that is the end of the gang.

    ``log_texts`` are looked for in the last output of a process that has failed; those that are there
    are its ``found_texts``; likewise ``log_patterns``, which are RE2, and its ``found_patterns``.

    ``makes`` is a folder as the processes see it, in a bucket. It is there when they start; if it
    is empty at the end, it goes again.
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
    completes: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    restarts: TaskRestarts = NO_RESTARTS
    makes: str = ""
    hang_s: float | None = None
    parallel: int | None = None
    max_failed: int = 0
    array: ArrayTasks | None = None
    elastic: bool = False
    stopped_last: tuple[str, ...] = ()
    launcher: str = ""
    busy_waits: bool = False
    idle_cores: float = IDLE_CORES
    log_texts: tuple[str, ...] = ()
    log_patterns: tuple[str, ...] = ()
    offline: bool = False

    @cached_property
    def tasks(self) -> tuple[ProcessPlan, ...]:
        """The processes, one for each task."""
        if self.array is None:
            return self.processes
        return tuple(self.array.plans(self.processes[0]))

    @property
    def first(self) -> ProcessPlan:
        """The first process, with whose limits shell commands run. An array may have none left."""
        return self.tasks[0] if self.tasks else self.processes[0]

    @property
    def width(self) -> int:
        """How many of its processes live at a time."""
        count = len(self.processes if self.array is None else self.array.indices)
        return count if self.parallel is None else min(count, self.parallel)

    @property
    def has_tasks(self) -> bool:
        """Whether it is of several tasks, or of one that is called like one of several."""
        return len(self.processes) > 1 or self.array is not None or self.elastic

    def for_runtime(self, runtime: str) -> Self | None:
        """The same gang in the variant that fits ``runtime``; ``None`` if none does."""
        if not self.variants:
            return self
        chosen = self._variant(runtime)
        if chosen is None or chosen.refused:
            return None
        processes = tuple(
            replace(
                plan, environment={**chosen.environments.get(plan.name, {}), **plan.environment}
            )
            for plan in self.processes
        )
        return replace(
            self,
            processes=processes,
            completes=chosen.completes,
            restarts=chosen.restarts,
            variants=(),
        )

    def with_used_restarts(self, used: int) -> Self:
        """The same gang, with so many restarts of single tasks used by earlier attempts."""
        variants = (
            replace(one, restarts=replace(one.restarts, used=used)) for one in self.variants
        )
        restarts = replace(self.restarts, used=used)
        return replace(self, restarts=restarts, variants=tuple(variants))

    def recipe_refusal(self, runtime: str) -> str:
        """Why no variant is for code in ``runtime``."""
        chosen = self._variant(runtime)
        if chosen and chosen.refused:
            return f"NoDistributedRecipe: {chosen.refused}. {_CLUSTER}"
        return (
            f"NoDistributedRecipe: code in {runtime or _BARE} does not say how its tasks find each "
            "other. --recipe pytorch sets RANK, WORLD_SIZE and MASTER_ADDR. --recipe dask and "
            f"--recipe mpi start Dask and MPI. {_CLUSTER}"
        )

    def _variant(self, runtime: str) -> Variant | None:
        return next((one for one in self.variants if one.fits(runtime)), None)
