"""What jobs reported of the metric that a study is about. Blocking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloud_ml.domain.jobs.kind import TrainJobRecord
from cloud_ml.domain.metrics.series import EVENT_FILES, LOG, Series, precedence
from cloud_ml.models.jobs.metric_patterns import pattern_of_metric
from cloud_ml.state.base import StateStore

_MOST_NAMES = 100

LastValue = tuple[float, int | None]
"""A value and its step."""


def find_series(
    series: Sequence[Series], metric: str, patterns: Sequence[str] | None
) -> Series | None:
    """The series that counts of a metric among all of a job; ``None`` if it gave no value.

    What ``metric:NAME`` finds in the log counts last, also behind an event file that has the metric
    as a tag: a study that names no pattern has it by default.
    """
    log_last = pattern_of_metric(metric) in (patterns or ())
    with_points = [one for one in series if one.count]
    found = [one for one in with_points if one.name == metric]
    if not found or (log_last and all(one.source == LOG for one in found)):
        found = [one for one in with_points if _has_tag(one, metric)] or found
    return max(
        found,
        key=lambda one: precedence(one.source, one.last_at, one.last_step, log_last=log_last),
        default=None,
    )


class Objectives:
    """Finds the last value of a metric among the series of a job.

    A metric of an event file may be named by its tag alone, whatever the folder of the file. What
    the job reported itself counts first, then its log.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def last(self, job: TrainJobRecord, metric: str) -> LastValue | None:
        """The last value that a job gave, and its step; ``None`` if it gave none."""
        newest = self.series(job, metric)
        return None if newest is None else (newest.last, newest.last_step)

    def series(self, job: TrainJobRecord, metric: str) -> Series | None:
        """The series of a metric that counts of a job; ``None`` if it gave no value."""
        series = self._store.metrics.series(job.key.uid)
        return find_series(series, metric, job.spec.submitted.metric_patterns)

    def reported(self, job: TrainJobRecord) -> Mapping[str, str]:
        """The metrics of a job and where each was found; a hundred at most."""
        found: dict[str, str] = {}
        for one in self._store.metrics.series(job.key.uid):
            if len(found) < _MOST_NAMES:
                found.setdefault(one.name, one.source)
        return found


def _has_tag(series: Series, tag: str) -> bool:
    return series.source == EVENT_FILES and series.name.endswith(f"/{tag}")
