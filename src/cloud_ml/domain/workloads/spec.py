"""What runs in attempts, whatever asked for it: a program, its tasks, and the rules of its life.
Knows no wire form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, Self, TypeVar

from cloud_ml.domain.workloads.exits import ON_FAILURE, ExitRules

SINGLE = "single"
"""The recipe of workloads whose one task knows no other."""
ARRAY = "array"
"""The recipe of workloads whose many tasks know no other."""


class Desired(StrEnum):
    """What the user wants of it right now."""

    RUN = "run"
    SAVED = "saved"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Resources:
    """What one task may use. ``None`` means no limit of its own.

    ``cpu_request_millis`` is for a task without a limit of processors: what its quota is charged,
    and its share where others want the processors too.
    """

    cpu_millis: int | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    cpu_request_millis: int | None = None

    @property
    def charged_cpu_millis(self) -> int | None:
        """What the quota is charged."""
        return self.cpu_millis if self.cpu_millis is not None else self.cpu_request_millis

    def with_defaults(self, defaults: DefaultLimits) -> Resources:
        """The same, with ``defaults`` where no limit is named."""
        memory, request = self.memory_bytes, self.cpu_request_millis
        if memory is None:
            memory = defaults.memory_bytes or None
        if self.cpu_millis is None and request is None:
            request = defaults.cpu_millis or None
        return replace(self, memory_bytes=memory, cpu_request_millis=request)


@dataclass(frozen=True)
class DefaultLimits:
    """What a task gets that names no limit; 0 means none. ``cpu_millis`` is a request, not a
    limit.
    """

    disk_bytes: int = 0
    memory_bytes: int = 0
    cpu_millis: int = 0


NO_DEFAULT_LIMITS = DefaultLimits()


@dataclass(frozen=True)
class Role:
    """Equal tasks of a workload. ``arguments`` follow those of the program.

    ``indices`` are those of its tasks where they are not counted from 0. Each task of a workload
    whose tasks find each other may listen on so many ``ports``.
    A role with a ``least`` is elastic: an attempt may have fewer tasks of it than ``replicas``, but
    not fewer than that.
    """

    name: str
    replicas: int = 1
    resources: Resources = Resources()
    arguments: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    ports: int = 1
    least: int | None = None

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of its tasks, such as ``worker-1``."""
        return tuple(f"{self.name}-{index}" for index in self.indices or range(self.replicas))


@dataclass(frozen=True)
class MemoryGrowth:
    """A task that needed more memory than its limit gets ``factor`` times as much, at most
    ``most_bytes``; ``None`` means no bound of its own.
    """

    factor: float
    most_bytes: int | None = None


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how soon a failed attempt is followed by another.

    ``task_retries`` is how often single tasks start again alone, in all attempts together; ``None``
    leaves it to the recipe. Delays grow by ``factor`` from ``first_delay_s`` to ``longest_delay_s``. An attempt
    that ran for ``healthy_s`` seconds with progress gives the whole budget back. ``exits`` says which
    failures are worth it. After an end for lack of memory, an attempt follows only with a ``memory_growth``.
    """

    max_retries: int = 0
    first_delay_s: float = 1.0
    factor: float = 2.0
    longest_delay_s: float = 300.0
    task_retries: int | None = None
    healthy_s: float = 3600.0
    exits: ExitRules = ON_FAILURE
    memory_growth: MemoryGrowth | None = None

    def delay_s(self, failures: int) -> float:
        """Seconds until the next start after so many failures in a row (from 1)."""
        return min(self.longest_delay_s, self.first_delay_s * self.factor ** min(failures - 1, 60))


@dataclass(frozen=True)
class Program:
    """What a task runs: ``python -m module arguments``, of the code at the URI ``source``.

    ``framework`` ``None`` means: find out from the code. ``requirements`` are installed beside
    those of the code. ``variables`` are set for it. ``output_path`` is passed with the flag
    ``--output_path`` to code that defines this flag; empty passes nothing. With ``paths_for_uris``,
    it gets arguments and variables that are ``fds://`` URIs as paths.
    """

    module: str
    source: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    framework: str | None = None
    framework_version: str | None = None
    requirements: tuple[str, ...] = ()
    output_path: str = ""
    paths_for_uris: bool = True


@dataclass(frozen=True)
class RequestedRestart:
    """The request that ``task`` starts again alone in ``attempt``: the restart ``number`` of those of
    the task that were asked for.
    """

    attempt: int
    task: str
    number: int


@dataclass(frozen=True)
class WorkloadSpec:
    """A program in equal or different tasks, and how it lives.

    ``recipe`` is the name of what makes processes of it (see ``cloud_ml.recipes``).
    ``bucket`` is the one that it sees at a fixed place, beside all others of its organisation.
    ``secrets`` are ``NAME`` for a file or ``NAME=VARIABLE``. One that ``serves`` runs until it is
    stopped. ``grace_s`` is the time between SIGTERM and SIGKILL when it is stopped; ``None`` means
    the operator's. ``priority`` 1 goes before 0. Without ``keeps_files``, nobody wants what it
    wrote when it has ended. ``restore_from`` is the URI of a checkpoint to go on from at first.
    The attempts up to ``restart_after`` are to give way to another one. ``requested_restarts`` are
    those of single tasks. One that gives no sign of
    life for ``hang_timeout_s`` is ended; ``None`` never ends it.

    At most ``parallel`` tasks live at a time; ``None`` means all of them. Tasks of an array are
    independent, and ``max_failed`` of them may fail without failing the workload. An elastic one
    becomes larger at most every ``elastic_every_s`` seconds (see ``worlds``).

    Of the checkpoints that it reports, the newest ``keep_checkpoints`` are kept, and those that
    others refer to (``referred_checkpoints``, paths in its folder); ``None`` keeps all. One that
    ``drops_checkpoints`` keeps none: its study keeps those of other trials. They are in the
    ``checkpoint_folder``, a URI, which other jobs may use too; if it is empty, in a folder of the
    job's own.

    With ``cluster_arguments``, tasks that know each other get the cluster as arguments too.
    Where the recipe knows processes within a task, each has ``procs_per_task``.
    One that ``reads_only`` some buckets sees these and no others, and cannot change them.
    """

    program: Program
    roles: tuple[Role, ...]
    bucket: str | None = None
    secrets: tuple[str, ...] = ()
    prepare_command: str | None = None
    finish_command: str | None = None
    serves: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    wall_time_s: int | None = None
    disk_bytes: int | None = None
    grace_s: float | None = None
    priority: int = 0
    keeps_files: bool = True
    desired: Desired = Desired.RUN
    recipe: str = SINGLE
    restore_from: str = ""
    restart_after: int = 0
    requested_restarts: tuple[RequestedRestart, ...] = ()
    hang_timeout_s: float | None = None
    parallel: int | None = None
    max_failed: int = 0
    elastic_every_s: float = 600.0
    keep_checkpoints: int | None = None
    checkpoint_folder: str = ""
    referred_checkpoints: tuple[str, ...] = ()
    drops_checkpoints: bool = False
    reads_only: tuple[str, ...] = ()
    cluster_arguments: bool = False
    procs_per_task: int = 1

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of all tasks, the chief's first."""
        return tuple(name for role in self.roles for name in role.tasks)

    @property
    def task_count(self) -> int:
        """The number of all tasks; makes no list of them, which may be too long."""
        return sum(role.replicas for role in self.roles)

    @property
    def port_count(self) -> int:
        """The number of ports of all tasks, if they find each other."""
        return sum(role.replicas * role.ports for role in self.roles) if self.has_peers else 0

    @property
    def has_peers(self) -> bool:
        """Whether its tasks find each other by names and ports."""
        return self.recipe not in (SINGLE, ARRAY)

    @property
    def is_array(self) -> bool:
        """Whether its tasks are independent: each ends for itself, and is done then."""
        return self.recipe == ARRAY

    @property
    def is_elastic(self) -> bool:
        """Whether an attempt may have fewer tasks than it has."""
        for role in self.roles:  # noqa: SIM110 - asked ten times for each job
            if role.least is not None:
                return True
        return False

    def at_once(self, role: Role) -> int:
        """How many tasks of a role live at a time; so many times it needs its resources."""
        return role.replicas if self.parallel is None else min(role.replicas, self.parallel)

    def with_defaults(self, defaults: DefaultLimits) -> WorkloadSpec:
        """The same workload, with ``defaults`` where it names no limit."""
        roles = tuple(
            replace(role, resources=role.resources.with_defaults(defaults)) for role in self.roles
        )
        disk = self.disk_bytes if self.disk_bytes is not None else defaults.disk_bytes or None
        return replace(self, roles=roles, disk_bytes=disk)

    def with_desired(self, desired: Desired) -> WorkloadSpec:
        """The same workload, wanted differently."""
        return replace(self, desired=desired)

    def stopped(self, grace_s: float | None = None) -> WorkloadSpec:
        """The same workload, to be stopped; ``grace_s`` takes the place of its own grace time."""
        return replace(
            self, desired=Desired.STOPPED, grace_s=self.grace_s if grace_s is None else grace_s
        )


class HasWorkload(Protocol):
    """The spec of a resource for which a workload runs."""

    @property
    def workload(self) -> WorkloadSpec:
        """What runs for it."""

    def with_workload(self, workload: WorkloadSpec) -> Self:
        """The same spec with another workload."""


W = TypeVar("W", bound=HasWorkload)
W_contra = TypeVar("W_contra", bound=HasWorkload, contravariant=True)


def change_workload(spec: W, change: Callable[[WorkloadSpec], WorkloadSpec]) -> W:
    """``spec`` with its workload changed."""
    return spec.with_workload(change(spec.workload))
