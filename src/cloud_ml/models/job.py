"""What the modern surface answers about jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cloud_ml.models.outputs import JobOutputs

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
class Job:
    """A train job as it stands.

    ``phase`` is the platform's word and ``state`` that of the original wire. ``spec`` holds the
    fields that were submitted. ``stages`` says when the current attempt reached each stage.
    ``revision`` grows with every change and is what ``wait`` compares. ``outputs`` sums up the
    files that the job left, once it has ended; null if there are none.
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
class JobTask:
    """A task of the current attempt and what it uses: ``cores`` and memory as last sampled, peaks
    of the samples.

    While a task is young there is no sample yet, and the figures are null.
    """

    name: str
    running: bool
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


@dataclass(frozen=True, kw_only=True)
class JobTasks:
    """What the engine sees of a job's current attempt. ``stages`` says when it reached each of
    its stages.
    """

    attempt: int
    stages: Mapping[str, datetime] = field(default_factory=dict)
    items: list[JobTask]


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
    """A line of the list of jobs. ``details`` is null unless the request asks for it."""

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
