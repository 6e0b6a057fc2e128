"""What the trials of a study have reported so far. Blocking.

Curves of trials that have ended do not change, so what counts of them is kept while their study
runs. A server that starts reads them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.metrics.series import LOG
from cloud_ml.domain.studies.ranking import sign_of
from cloud_ml.domain.studies.spec import StudyRecord, TrialState, TrialStatus, trial_name
from cloud_ml.domain.studies.stopping import Curve, Stopper, condensed
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import PointRange
from cloud_ml.usecases.studies.reported_values import find_series

_MOST_POINTS, _MOST_STUDIES = 1000, 200
_ENDED = (TrialState.COMPLETED, TrialState.EARLY_STOPPED)


@dataclass(frozen=True)
class _Known:
    """A curve, and what its series looked like when it was read."""

    version: tuple[int, int, int]
    curve: Curve


class TrialCurves:
    """Reads the curves of studies. One study is read by one thread at a time."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._ended: dict[str, dict[int, Curve]] = {}
        self._running: dict[str, dict[int, _Known]] = {}

    def of(self, record: StudyRecord, stopper: Stopper) -> Mapping[int, Curve]:
        """The curves of all trials that count for the rule, by their number."""
        uid = record.key.uid
        while len(self._ended) > _MOST_STUDIES:  # of studies that were deleted as they ran
            self.forget(next(iter(self._ended)))
        ended = self._ended.setdefault(uid, {})
        running = self._running.setdefault(uid, {})
        found: dict[int, Curve] = {}
        for trial in record.status.trials:
            if trial.state is TrialState.RUNNING:
                running[trial.number] = known = self._read(record, trial, running.get(trial.number))
                found[trial.number] = known.curve
            elif trial.state in _ENDED:
                if trial.number not in ended:
                    last = self._read(record, trial, running.pop(trial.number, None))
                    ended[trial.number] = condensed(stopper, last.curve)
                found[trial.number] = ended[trial.number]
        return found

    def forget(self, uid: str) -> None:
        """The study needs nothing any more."""
        self._ended.pop(uid, None)
        self._running.pop(uid, None)

    def _read(self, record: StudyRecord, trial: TrialStatus, known: _Known | None) -> _Known:
        """The curve of a trial: that of the task which reported last."""
        nothing = _Known((0, 0, 0), ())
        job = self._store.find(TRAIN_JOB, record.key.org, trial_name(record.key.name, trial.number))
        if job is None or job.parent is None or job.parent.uid != record.key.uid:
            return known or nothing
        metrics, uid = self._store.metrics, job.key.uid
        series = metrics.series_of([uid], [record.spec.metric]).get(uid, ())
        if all(one.source == LOG for one in series):  # there may be an event file with this tag
            series = metrics.series_of([uid]).get(uid, ())
        newest = find_series(series, record.spec.metric, job.spec.submitted.metric_patterns)
        if newest is None:
            return nothing
        version = (newest.number, newest.count, newest.last_at)
        if known is not None and known.version == version:
            return known
        sign = sign_of(record.spec.goal)
        points = metrics.points(newest.number, PointRange(most=_MOST_POINTS))
        return _Known(version, tuple(Point(one.step, one.at, sign * one.value) for one in points))
