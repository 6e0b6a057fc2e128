"""What a caller may ask of the metrics of jobs. Blocking."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.metrics.points import LARGEST_STEP
from cloud_ml.domain.metrics.series import SOURCES, Series, precedence
from cloud_ml.errors import NotFound
from cloud_ml.models import common
from cloud_ml.models.tracking.metrics import (
    JobSeries,
    MetricSeries,
    MetricValue,
    SummaryTag,
    moment_of,
    points_document,
    to_wire,
)
from cloud_ml.settings.metrics import MetricSettings
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import PointRange
from cloud_ml.usecases.tracking.history import MetricHistoryReader

_MOST_COLUMNS = 20
_NAMED = 10


@dataclass(frozen=True)
class Reporter:
    """A job or another run that has reported metrics. ``tasks`` are in their order."""

    uid: str
    name: str
    tasks: Sequence[str] = ()
    what: str = "job"


def reporter_of(job: TrainJobRecord) -> Reporter:
    """A job that reports metrics."""
    return Reporter(job.key.uid, job.key.name, tuple(job.spec.workload.tasks))


class JobMetrics:
    """Reads series of jobs and other runs, and points of them."""

    def __init__(self, store: StateStore, settings: MetricSettings) -> None:
        self._store = store
        self._most = settings.points_per_answer

    def series(self, job: Reporter, task: str | None = None) -> JobSeries:
        """The series of a job; with ``task``, only those of this one."""
        found = self._store.metrics.series(job.uid)
        return JobSeries(
            items=[_row(one) for one in found if task in (None, one.task)],
            summaries=self._summaries(job, task),
        )

    def _summaries(self, job: Reporter, task: str | None) -> list[SummaryTag]:
        # Event files count as those of the first task, whoever has written them.
        if task is not None and task not in job.tasks[:1]:
            return []
        return [
            SummaryTag(
                name=tag.name,
                kind=tag.kind,
                count=tag.count,
                last_step=tag.last_step,
                last_at=moment_of(tag.last_at),
            )
            for tag in self._store.metrics.tags(job.uid)
        ]

    def points(
        self,
        job: Reporter,
        name: str,
        *,
        task: str | None,
        low: int | None,
        high: int | None,
        points: int,
        earlier: bool = False,
    ) -> dict[str, Any]:
        """Points of a series, as a ``MetricPoints`` in JSON. Without ``task``, of the first task
        that has reported this metric.

        Args:
            job: The job.
            name: The metric.
            task: Whose.
            low: The first step; ``None`` for the first one that there is.
            high: The last step, likewise.
            points: At most so many.
            earlier: Only points of earlier attempts that a later one has repeated.

        Raises:
            NotFound: There is no such series.
            InvalidRequest: The range is empty, or too many points are wanted.
        """
        if not 2 <= points <= self._most:
            raise common.refuse("points", points, f"a number from 2 to {self._most}")
        if low is not None and high is not None and low > high:
            raise common.refuse("from", low, f"a step that is not beyond to, which is {high}")
        series = self._find(job, name, task)
        point_range = PointRange(
            -LARGEST_STEP if low is None else low,
            LARGEST_STEP if high is None else high,
            points,
            earlier,
        )
        found = self._store.metrics.points(series.number, point_range)
        return points_document(series.name, series.task, found)

    def page(
        self,
        job: Reporter,
        name: str,
        *,
        task: str | None,
        source: str | None,
        token: str,
        points: int,
    ) -> dict[str, Any]:
        """All points of a series as they came, page by page, as a ``MetricPoints`` in JSON.

        Args:
            job: The job.
            name: The metric.
            task: Whose; ``None`` for that of the first task.
            source: From where, likewise.
            token: ``0.0``, or that of the page before.
            points: At most so many.

        Raises:
            NotFound: There is no such series.
            InvalidRequest: The token is none, or too many points are wanted.
        """
        if not 1 <= points <= self._most:
            raise common.refuse("points", points, f"a number from 1 to {self._most}")
        series = self._find(job, name, task, source)
        found, following = MetricHistoryReader(self._store).page_of(series, token, points)
        document = points_document(series.name, series.task, found)
        return {**document, "next": following} if following else document

    def columns(
        self, uids: Collection[str], names: str | None
    ) -> Mapping[str, Mapping[str, MetricValue]]:
        """The last values of metrics of several jobs, by uid and name.

        Args:
            uids: The jobs.
            names: The metrics, separated by commas.

        Raises:
            InvalidRequest: There are too many names.
        """
        metric_names = [name.strip() for name in (names or "").split(",") if name.strip()]
        if len(metric_names) > _MOST_COLUMNS:
            raise common.refuse("metrics", names, f"at most {_MOST_COLUMNS} names")
        if not metric_names:
            return {}
        found = self._store.metrics.series_of(uids, metric_names)
        return {uid: _last_values(lines) for uid, lines in found.items()}

    def _find(
        self, job: Reporter, name: str, task: str | None, source: str | None = None
    ) -> Series:
        there = self._store.metrics.series(job.uid)
        found = [
            one
            for one in there
            if one.name == name and task in (None, one.task) and source in (None, one.source)
        ]
        if found:
            order = {each: at for at, each in enumerate(job.tasks)}
            first = order.get
            return min(
                found, key=lambda one: (first(one.task, len(order)), SOURCES.index(one.source))
            )
        raise _unknown(job, name, task, there)


def _unknown(job: Reporter, name: str, task: str | None, there: Sequence[Series]) -> NotFound:
    names = sorted({one.name for one in there if task in (None, one.task)})
    whose = f"task {task} of {job.what} {job.name}" if task else f"{job.what} {job.name}"
    shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    near = get_close_matches(name, names, n=1)
    return NotFound(
        f"{whose} has reported no metric {name!r}",
        field="metric",
        value=name,
        allowed=f"one of {shown}" if names else "none: nothing was reported yet",
        hint=f"Did you mean {near[0]}?" if near else None,
    )


def _last_values(lines: Sequence[Series]) -> Mapping[str, MetricValue]:
    """Of several sources and tasks, the value that counts."""
    ranked = sorted(lines, key=lambda one: precedence(one.source, one.last_at, one.last_step))
    return {one.name: to_wire(one.last) for one in ranked}


def _row(series: Series) -> MetricSeries:
    return MetricSeries(
        name=series.name,
        task=series.task,
        count=series.count,
        first=to_wire(series.first),
        last=to_wire(series.last),
        min=None if series.min is None else to_wire(series.min),
        max=None if series.max is None else to_wire(series.max),
        last_step=series.last_step,
        last_at=moment_of(series.last_at),
        nan=series.nan,
        attempt=series.start.attempt,
        earlier=series.earlier,
        source=series.source,
        removed=series.removed,
    )
