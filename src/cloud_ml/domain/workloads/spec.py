"""What runs in attempts, whatever asked for it: a program, its tasks, and the rules of its life.
Knows no wire form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, Self, TypeVar


class Desired(StrEnum):
    """What the user wants of it right now."""

    RUN = "run"
    SAVED = "saved"
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
    """Equal tasks of a workload."""

    name: str
    replicas: int = 1
    resources: Resources = Resources()


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how soon a failed attempt is followed by another.

    Delays grow by ``factor`` from ``first_delay_s`` to ``longest_delay_s``.
    """

    max_retries: int = 0
    first_delay_s: float = 1.0
    factor: float = 2.0
    longest_delay_s: float = 300.0

    def delay_s(self, failed_attempt: int) -> float:
        """Seconds between the end of ``failed_attempt`` (from 1) and the start of the next."""
        return min(
            self.longest_delay_s, self.first_delay_s * self.factor ** min(failed_attempt - 1, 60)
        )


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
class WorkloadSpec:
    """A program in equal or different tasks, and how it lives.

    ``bucket`` is the one that it sees at a fixed place, beside all others of its organisation.
    ``secrets`` are ``NAME`` for a file or ``NAME=VARIABLE``. One that ``serves`` runs until it is
    stopped. ``grace_s`` is the time between SIGTERM and SIGKILL when it is stopped; ``None`` means
    the operator's. ``priority`` 1 goes before 0. Without ``keeps_files``, nobody wants what it
    wrote when it has ended.
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
