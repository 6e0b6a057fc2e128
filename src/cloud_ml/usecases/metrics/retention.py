"""Removes points of runs that ended long ago. Blocking."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from cloud_ml.domain.jobs.kind import TRAIN_JOB, TrainJobRecord
from cloud_ml.domain.records import Event
from cloud_ml.domain.studies.spec import STUDY
from cloud_ml.domain.tracking.runs import RUN
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import RunWithPoints
from cloud_ml.usecases.clock import Clock

_PAGE = 200
_CHUNKS = 200
"""Chunks that one transaction removes: others wait for the writer meanwhile."""


class PointRetention:
    """Removes points of runs whose end is longer ago than points are kept.

    A run that is interrupted by a crash still has points, so the next call goes on with it.

    Args:
        store: Keeps runs and points.
        clock: The time.
        days: How long points are kept; 0 for ever.
    """

    def __init__(self, store: StateStore, clock: Clock, days: int) -> None:
        self._store = store
        self._clock = clock
        self._days = days

    def expire(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Look at all runs with points, once. Ends early when ``stop`` says so."""
        after = 0
        while self._days:
            found = self._store.metrics.runs_with_points(after, _PAGE)
            for run in found:
                if stop():
                    return
                if self._is_old(run):
                    self._remove(run, stop)
            if len(found) < _PAGE:
                return
            after = found[-1].number

    def _remove(self, run: RunWithPoints, stop: Callable[[], bool]) -> None:
        """Remove the points that a run has now. What is logged meanwhile, as clients may to a run
        that ended, is for the next look: other runs wait.
        """
        series = self._store.metrics.series(run.uid)
        removed, there = 0, sum(one.count + one.earlier - one.removed for one in series)
        while removed < there and self._is_old(run):
            more = self._store.metrics.remove_points(run.uid, _CHUNKS)
            if not more:  # another server has removed the rest
                break
            removed += more
            if stop():
                return
        if removed:
            sentence = (
                f"the points of the metrics were removed {self._days} days after the end "
                "(metrics.retention_days); first, last, least and largest values stay"
            )
            self._store.add_event(run.uid, Event(self._clock(), Reason.METRICS_EXPIRED, sentence))

    def _is_old(self, run: RunWithPoints) -> bool:
        """Whether a run ended before the points of today's are kept from."""
        cutoff = self._clock() - timedelta(days=self._days)
        if run.kind == TRAIN_JOB.name:
            job = self._store.get(TRAIN_JOB, run.uid)
            ended = None if job is None else job.status.finished_at
            if job is None or ended is None or not job.status.phase.terminal:
                return False
            return ended < cutoff and not self._is_needed(job)
        row, record = self._store.tracking.run(run.uid), self._store.get(RUN, run.uid)
        if row is None or record is None or row.end is None or not row.state.ended:
            return False
        # A run that was imported ended before it was made here, as its client says.
        return record.created_at < cutoff and row.end < cutoff.timestamp() * 1000

    def _is_needed(self, job: TrainJobRecord) -> bool:
        """Whether a study that goes on judges its trials by the points of this one."""
        if job.parent is None or job.parent.kind != STUDY.name:
            return False
        study = self._store.get(STUDY, job.parent.uid)
        return study is not None and not study.status.phase.over
