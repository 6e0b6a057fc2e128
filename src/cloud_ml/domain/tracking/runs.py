"""Runs and the experiments that group them.

A train job is its run: they share the record. A run without a job has a record of kind ``run``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.records import Kind
from cloud_ml.domain.workloads.phases import TERMINAL, Phase

DEFAULT_EXPERIMENT, DEFAULT_NAME = "0", "Default"
"""The experiment of runs that name none. Every organisation has one."""
CLIENT_TASK = "client"
"""Stands for a task in the series of metrics that came through the API and not from a task."""
EXPERIMENT_LABEL = "experiment"
"""The label of a job that names its experiment."""
MODEL_HISTORY_TAG = "mlflow.log-model.history"
"""The tag in which clients before MLflow 3 keep the models of a run, as a JSON list."""
PARENT_TAG = "mlflow.parentRunId"
"""The tag in which MLflow's clients keep the run that a run is a part of."""
USER_TAG = "mlflow.user"
"""The tag in which MLflow's clients keep who has made a run. In a job, they take the name of the
user of its processes.
"""
ATTEMPT_TAG = "cloudml.attempt"
"""The tag of a job's run with the attempt whose code has begun it with MLflow's client."""
LONGEST_TAG = 8000
"""Characters of a tag, as in MLflow."""
VALUE_HEAD = 100
"""Characters of a parameter or tag that stand in the index: PostgreSQL takes some 2,700 bytes."""


class RunState(StrEnum):
    """As in MLflow."""

    RUNNING = "RUNNING"
    SCHEDULED = "SCHEDULED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self in (RunState.FINISHED, RunState.FAILED, RunState.KILLED)


_OF_JOBS: Mapping[Phase, RunState] = {
    Phase.SAVED: RunState.SCHEDULED,
    Phase.PAUSED: RunState.SCHEDULED,
    Phase.QUEUED: RunState.SCHEDULED,
    Phase.RESTARTING: RunState.SCHEDULED,
    Phase.STARTING: RunState.SCHEDULED,
    Phase.RUNNING: RunState.RUNNING,
    Phase.FINISHING: RunState.RUNNING,
    Phase.STOPPING: RunState.RUNNING,
    Phase.SUCCEEDED: RunState.FINISHED,
    Phase.FAILED: RunState.FAILED,
    Phase.STOPPED: RunState.KILLED,
}
ENDED_PHASES = tuple(sorted(phase.value for phase in TERMINAL))


def state_of_phase(phase: str) -> RunState:
    """The state of a job's run. A phase of a newer version counts as running."""
    return _OF_JOBS[Phase(phase)] if phase in set(Phase) else RunState.RUNNING


def phases_of(states: Collection[str]) -> list[str]:
    """The phases of jobs whose runs are in one of these states."""
    return sorted(phase.value for phase, state in _OF_JOBS.items() if state.value in states)


class View(StrEnum):
    """Which runs or experiments are looked at: deletion hides them first."""

    ACTIVE = "ACTIVE_ONLY"
    DELETED = "DELETED_ONLY"
    ALL = "ALL"

    def admits(self, *, deleted: bool) -> bool:
        """Whether one is in this view."""
        return self is View.ALL or deleted is (self is View.DELETED)


@dataclass(frozen=True)
class RunSpec:
    """What the record of a run without a job holds; the rest is in its row."""


class RunPhase(StrEnum):
    """The phase of such a record: its state is in its row."""

    LOGGED = "Logged"


@dataclass(frozen=True)
class RunStatus:
    """The status of such a record."""

    phase: RunPhase = RunPhase.LOGGED


RUN = Kind("run", RunSpec, RunStatus)


@dataclass(frozen=True)
class NewRun:
    """The row of a run that is made with its record.

    ``state`` is ``None`` for a job: its phase says it. ``start`` and ``end`` are milliseconds since
    1970.
    """

    experiment: str = DEFAULT_EXPERIMENT
    name: str = ""
    state: RunState | None = None
    start: int = 0
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRow:
    """A run as lists show it, without metrics, parameters and tags.

    ``revision`` is that of its record.
    """

    number: int
    uid: str
    org: str
    is_job: bool
    name: str
    experiment: str
    user: str
    state: RunState
    start: int
    end: int | None = None
    deleted: bool = False
    inputs: str = "[]"
    revision: int = 0


@dataclass(frozen=True)
class RunChange:
    """What a change of a run's row sets; ``None`` leaves it. State and end of a job are its own."""

    name: str | None = None
    state: RunState | None = None
    end: int | None = None
    deleted: bool | None = None
    inputs: str | None = None
    experiment: str | None = None
    more_inputs: Sequence[Any] = ()
    """Data sets to add to those that are there."""


@dataclass(frozen=True)
class LogBatch:
    """What is logged together: all of it, or nothing."""

    values: Sequence[Value] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    removed_tags: Collection[str] = ()
    models: Sequence[Any] = ()
    """Models to add to those of the tag ``MODEL_HISTORY_TAG``."""
    name: str = ""
    """The name of the run from now on; empty leaves it."""


@dataclass(frozen=True)
class TrackingLimits:
    """What one run may have, beside its metrics."""

    params: int = 2000
    tags: int = 1000
    characters: int = 1_000_000
    """Of all parameters together, and of all tags."""


@dataclass(frozen=True)
class Experiment:
    """A group of runs. Times are milliseconds since 1970.

    ``revision`` is that of its newest change; 0 where none is known.
    """

    id: str
    org: str
    name: str
    created: int = 0
    updated: int = 0
    deleted: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    revision: int = 0


class LastValue(NamedTuple):
    """The newest value of a metric of a run. A tuple: a list of runs makes a thousand of them."""

    name: str
    value: float
    step: int
    at: int
