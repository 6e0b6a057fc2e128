"""A job in normal form, whatever the wire said: roles × replicas, amounts as numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from cloud_ml.models import common
from cloud_ml.models.train_job import TrainJob


class Desired(StrEnum):
    """What the user wants of the job right now."""

    RUN = "run"
    SAVED = "saved"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Resources:
    """What one task may use. ``None`` means no limit of its own.

    ``cpu_request_millis`` is for a task without a limit of processors: what its quota is charged, and its
    share where others want the processors too.
    """

    cpu_millis: int | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    cpu_request_millis: int | None = None

    @property
    def charged_cpu_millis(self) -> int | None:
        """What the quota is charged."""
        return self.cpu_millis if self.cpu_millis is not None else self.cpu_request_millis


@dataclass(frozen=True)
class DefaultLimits:
    """What a task gets that names no limit; 0 means none. ``cpu_millis`` is a request, not a limit."""

    disk_bytes: int = 0
    memory_bytes: int = 0
    cpu_millis: int = 0


NO_DEFAULT_LIMITS = DefaultLimits()


@dataclass(frozen=True)
class Role:
    """Equal tasks of a job."""

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
        return min(self.longest_delay_s, self.first_delay_s * self.factor ** min(failed_attempt - 1, 60))


@dataclass(frozen=True)
class JobSpec:
    """What is to run. ``submitted`` is the wire form it was made from, kept to be shown and run again.

    ``may_add_arguments`` tells that the platform may pass arguments that the user gave in another way.
    ``grace_s`` is the time between SIGTERM and SIGKILL when the job is stopped; ``None`` means the operator's.
    """

    submitted: TrainJob
    roles: tuple[Role, ...]
    arguments: tuple[str, ...] = ()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    wall_time_s: int | None = None
    disk_bytes: int | None = None
    grace_s: float | None = None
    desired: Desired = Desired.RUN
    may_add_arguments: bool = False

    @property
    def priority(self) -> int:
        """1 goes before 0 in the queue."""
        return self.submitted.enable_rank

    def with_defaults(self, defaults: DefaultLimits) -> JobSpec:
        """The same job, with ``defaults`` where it names no limit."""
        roles = tuple(replace(role, resources=_filled(role.resources, defaults)) for role in self.roles)
        disk = self.disk_bytes if self.disk_bytes is not None else defaults.disk_bytes or None
        return replace(self, roles=roles, disk_bytes=disk)

    def with_desired(self, desired: Desired) -> JobSpec:
        """The same job, wanted differently."""
        return replace(self, desired=desired)

    def stopped(self, grace_s: float | None = None) -> JobSpec:
        """The same job, to be stopped; ``grace_s`` takes the place of its own grace time."""
        return replace(self, desired=Desired.STOPPED, grace_s=self.grace_s if grace_s is None else grace_s)


def from_wire(job: TrainJob) -> JobSpec:
    """Normalise a validated wire form.

    Raises:
        InvalidRequest: A field contradicts another.
    """
    return JobSpec(
        submitted=job,
        roles=(Role(name="master", resources=_resources(job)),),
        arguments=tuple(job.arguments()),
        retry=RetryPolicy(max_retries=job.max_retries),
        wall_time_s=common.duration_seconds(str(job.wall_time_limit)) if job.wall_time_limit else None,
        grace_s=None if job.grace_time is None else float(common.duration_seconds(str(job.grace_time))),
        disk_bytes=common.memory_bytes(job.disk_limit) if job.disk_limit else None,
        desired=Desired.SAVED if job.save_mode else Desired.RUN,
    )


def _resources(job: TrainJob) -> Resources:
    return Resources(
        cpu_millis=common.cpu_millis(str(job.cpu_limit)) if job.cpu_limit else None,
        memory_bytes=common.memory_bytes(job.memory_limit) if job.memory_limit else None,
        gpus=int(job.gpu_limit or 0),
    )


def _filled(resources: Resources, defaults: DefaultLimits) -> Resources:
    memory, request = resources.memory_bytes, resources.cpu_request_millis
    if memory is None:
        memory = defaults.memory_bytes or None
    if resources.cpu_millis is None and request is None:
        request = defaults.cpu_millis or None
    return replace(resources, memory_bytes=memory, cpu_request_millis=request)
