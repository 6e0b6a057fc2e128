"""Runs and experiments, as the modern surface answers them. A job is its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from cloud_ml.models.tracking.metrics import MetricValue

_SUCCEEDED = "FINISHED"
_ENDED = frozenset({_SUCCEEDED, "FAILED", "KILLED"})


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run with what was logged to it.

    Attributes:
        uid: That of the job, if it is one; the ``run_id`` of MLflow.
        name: That of the job, or the one that it was given. Several runs may have one name.
        experiment: The name of its experiment.
        experiment_id: The id of that in MLflow.
        is_job: Whether it is a job.
        user: Who made it.
        state: ``SCHEDULED``, ``RUNNING``, ``FINISHED``, ``FAILED`` or ``KILLED``.
        created_at: When it began; for a job, when it was submitted.
        ended_at: When it ended, if it has.
        metrics: The last value of each metric.
        params: Parameters. For a job, its arguments.
        tags: Tags. For a job, its labels.
        revision: Another one after each change of its name, state or end, and after it was deleted
            or restored; for a job, after each change of the job. What is logged does not count.
        deleted: Whether it is hidden from lists: MLflow's client has deleted it, and may restore
            it.
    """

    uid: str
    name: str
    experiment: str
    experiment_id: str
    is_job: bool
    user: str
    state: str
    created_at: datetime
    ended_at: datetime | None = None
    metrics: dict[str, MetricValue] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    revision: int = 0
    deleted: bool = False

    @property
    def finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state in _ENDED

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self.state == _SUCCEEDED


@dataclass(frozen=True, kw_only=True)
class RunChange:
    """A run changed: ``run`` is how it stands then or a moment later, ``None`` when it is gone.

    ``revision`` is the place in the stream of changes from which watching can be taken up again.
    """

    revision: int
    uid: str
    org: str
    run: Run | None = None

    @property
    def gone(self) -> bool:
        """Whether the run was removed for good."""
        return self.run is None


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """Runs. ``next`` goes into ``after``, ``revision`` into that of a stream of changes."""

    items: list[Run]
    next: int | None = None
    revision: int | None = None


@dataclass(frozen=True, kw_only=True)
class RunExperiment:
    """A group of runs.

    Attributes:
        id: Its ``experiment_id`` in MLflow.
        name: Its name.
        created_at: When it was made.
        updated_at: When it was changed last.
        tags: Its tags. MLflow's clients keep its note in ``mlflow.note.content``.
        revision: Another one after each change of its name or tags, and after it was deleted or
            restored. 0 if there was no change since experiments have revisions.
        deleted: Whether it is hidden from lists: MLflow's client has deleted it, and may restore
            it.
    """

    id: str
    name: str
    created_at: datetime
    updated_at: datetime
    tags: dict[str, str] = field(default_factory=dict)
    revision: int = 0
    deleted: bool = False


@dataclass(frozen=True, kw_only=True)
class ExperimentChange:
    """An experiment was made or changed: ``experiment`` is how it stands then or a moment later.

    ``revision`` is the place in the stream of changes from which watching can be taken up again.
    """

    revision: int
    id: str
    org: str
    experiment: RunExperiment


@dataclass(frozen=True, kw_only=True)
class ExperimentPage:
    """Experiments of an organisation, newest first. ``next`` goes into ``after`` of the next page, and
    ``revision`` into that of a stream of changes.
    """

    items: list[RunExperiment]
    next: str | None = None
    revision: int | None = None


def with_numbers(run: Run) -> Run:
    """The run with numbers in the place of texts. One that has no texts needs no copy."""
    if {float}.issuperset(map(type, run.metrics.values())):
        return run
    return replace(run, metrics={name: float(value) for name, value in run.metrics.items()})


def experiment_from_mlflow(document: Mapping[str, Any]) -> RunExperiment:
    """An experiment as MLflow's API answers it."""
    return RunExperiment(
        id=document["experiment_id"],
        name=document["name"],
        created_at=_time(document.get("creation_time", 0)),
        updated_at=_time(document.get("last_update_time", 0)),
        tags={one["key"]: one["value"] for one in document.get("tags", [])},
        deleted=document.get("lifecycle_stage") == "deleted",
    )


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
