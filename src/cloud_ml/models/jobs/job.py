"""What the modern surface answers about jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cloud_ml.models.jobs.checkpoints import NewestCheckpoint
from cloud_ml.models.jobs.outputs import JobOutputs
from cloud_ml.models.tracking.metrics import MetricValue

FINISHED = ("Succeeded", "Failed", "Stopped")
"""Phases after which nothing follows, of a job and of a replica."""


@dataclass(frozen=True, kw_only=True)
class JobUsage:
    """What the decisive task has used. Memory in bytes, time in seconds."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    processes: int = 0


@dataclass(frozen=True, kw_only=True)
class JobTaskState:
    """Whether a task of a job of several runs, or how it has ended. ``reason`` is empty before its
    end.

    In this attempt it has started again alone ``restarts`` times, the last time because of
    ``last_end``. That end had ``last_reason``, which is empty if there was none or if it is not
    known, and ``last_exit_code`` or ``last_signal``. One that is ``restarting`` has failed and
    starts again soon. It is on the machine ``node``, and the others reach it at ``address``, such
    as ``worker-1:20003``; empty if it has none.
    """

    name: str
    running: bool = False
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    signal: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restarts: int = 0
    last_end: str = ""
    last_reason: str = ""
    last_exit_code: int | None = None
    last_signal: str | None = None
    restarting: bool = False
    node: str = ""
    address: str = ""


@dataclass(frozen=True, kw_only=True)
class JobRecovery:
    """A restart after a failure: of one task alone, or of the ``whole`` job as another attempt.

    ``role`` and ``reason`` are those of the task that failed. It ran again after ``recovery_s``
    seconds, with the delay that a retry waits; ``stages`` divides them, without the delay.
    ``lost_work_s`` is the time from the last complete checkpoint, or from the start, to the failure;
    null if it is not known.
    """

    role: str
    reason: str
    whole: bool = False
    recovery_s: float = 0.0
    lost_work_s: float | None = None
    stages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobRecoveries:
    """What failures have cost a job that went on after them, in sum and the ``last`` time."""

    count: int
    recovery_s: float
    lost_work_s: float
    last: JobRecovery


@dataclass(frozen=True, kw_only=True)
class JobMemory:
    """The memory limit that each task of a role has by now, after one that was too little. In
    bytes; ``first_bytes`` is the limit that the job had at first.
    """

    role: str
    limit_bytes: int
    first_bytes: int


@dataclass(frozen=True, kw_only=True)
class Job:
    """A train job as it stands.

    ``phase`` is the platform's word and ``state`` that of the original wire. ``spec`` holds the
    fields that were submitted. ``stages`` says when the current attempt reached each stage.
    ``revision`` grows with every change and is what ``wait`` compares. ``outputs`` sums up the
    files that the job left, once it has ended; null if there are none. ``tasks`` is empty for a
    job of one task. ``world`` says how many tasks of each role an elastic job has in this attempt.
    ``retries_used`` of ``max_retries`` failures were followed by another attempt. Before the current
    attempt, single tasks have started again ``task_restarts_used`` times of the ``task_retries``.
    ``recoveries`` is null until something has started again after a failure. ``memory`` has the
    roles that were given more memory after ``OOMKilled`` (``restart.memory_factor``).
    ``checkpoint`` is the newest complete one. It is looked for where one job is asked for by name.
    It is null in other answers, without a checkpoint, if it is not found within a second, and for an
    array, whose tasks have their own.
    """

    uid: str
    name: str
    org: str
    owner: str
    revision: int
    phase: str
    state: str
    attempt: int
    created_at: datetime
    updated_at: datetime
    reason: str = ""
    message: str = ""
    queued_at: datetime | None = None
    starting_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    signal: str | None = None
    node: str = ""
    runtime: str = ""
    environment_lock: str = ""
    trainer_digest: str = ""
    deleting: bool = False
    stages: Mapping[str, datetime] = field(default_factory=dict)
    usage: JobUsage = field(default_factory=JobUsage)
    outputs: JobOutputs | None = None
    tasks: list[JobTaskState] = field(default_factory=list)
    world: Mapping[str, int] = field(default_factory=dict)
    retries_used: int = 0
    max_retries: int = 0
    task_restarts_used: int = 0
    recoveries: JobRecoveries | None = None
    memory: list[JobMemory] = field(default_factory=list)
    checkpoint: NewestCheckpoint | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether nothing can follow any more."""
        return self.phase in FINISHED

    @property
    def succeeded(self) -> bool:
        """Whether the job ended well."""
        return self.phase == "Succeeded"


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    """What a task reported last: the step, of so many, the part of the work that is done (0 to 1),
    and figures such as the loss. ``remaining_s`` is about how many seconds it still takes if it goes on
    as fast as until ``at``; null where the part that is done is not known, or where it began.
    """

    at: datetime
    step: int | None = None
    of: int | None = None
    fraction: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    remaining_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class JobTask:
    """A task of the current attempt and what it uses: ``cores`` and memory as last sampled, peaks
    of the samples.

    While a task is young there is no sample yet, and the figures are null. ``reason``, ``message``,
    ``restarts``, ``last_end``, ``last_reason``, ``last_exit_code``, ``last_signal``,
    ``restarting``, ``node`` and ``address`` are as in ``JobTaskState``. ``progress`` is null if the code reports none.
    """

    name: str
    running: bool
    reason: str = ""
    message: str = ""
    restarting: bool = False
    restarts: int = 0
    last_end: str = ""
    last_reason: str = ""
    last_exit_code: int | None = None
    last_signal: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    signal: str | None = None
    sampled_at: datetime | None = None
    cores: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cpu_limit: float | None = None
    processes: int | None = None
    progress: JobProgress | None = None
    node: str = ""
    address: str = ""


@dataclass(frozen=True, kw_only=True)
class JobTasks:
    """What the engine sees of a job's current attempt. ``stages`` says when it reached each of
    its stages. A loop over it is one over its ``items``, the tasks.
    """

    attempt: int
    stages: Mapping[str, datetime] = field(default_factory=dict)
    items: list[JobTask]

    def __iter__(self) -> Iterator[JobTask]:
        return iter(self.items)


@dataclass(frozen=True, kw_only=True)
class JobStacks:
    """The tasks whose processes were asked for the stacks of their threads, which go to the logs
    of this attempt.
    """

    attempt: int
    tasks: list[str]


@dataclass(frozen=True, kw_only=True)
class JobDetails:
    """What a list says about a job on request: why it is where it is, how long it ran, with
    which arguments.
    """

    reason: str = ""
    message: str = ""
    attempt: int = 1
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    signal: str | None = None
    runtime: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """A line of the list of jobs. ``details`` is null unless the request asks for it, and so are
    ``metrics``: the last values of those that it names.
    """

    uid: str
    name: str
    org: str
    owner: str
    phase: str
    state: str
    created_at: datetime
    updated_at: datetime
    deleting: bool = False
    details: JobDetails | None = None
    metrics: Mapping[str, MetricValue] | None = None


@dataclass(frozen=True, kw_only=True)
class JobPage:
    """Newest first; ``next`` goes into ``after`` of the next request and is null at the end.

    Whoever watches from ``revision`` on misses nothing that is not in the list.
    """

    items: list[JobSummary]
    next: int | None = None
    revision: int = 0


@dataclass(frozen=True, kw_only=True)
class JobChange:
    """A job changed: ``job`` is how it stands then or a moment later, ``None`` when it is gone.

    ``revision`` is the place in the stream of changes from which watching can be taken up again.
    """

    revision: int
    uid: str
    name: str
    org: str
    job: Job | None = None

    @property
    def gone(self) -> bool:
        """Whether the job was deleted."""
        return self.job is None


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """One sentence about a job."""

    id: int
    at: datetime
    type: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class JobEvents:
    """Events in the order they were written."""

    items: list[JobEvent]
