"""Collects what the tasks of a job have reported of metrics. Blocking.

Where a file was read to is stored with its points in one transaction. So a collector that dies, or
two at a time, lose no point and keep none twice.
"""

from __future__ import annotations

from typing import Any

from cloud_ml import failpoints
from cloud_ml.domain.metrics.reports import read_reports
from cloud_ml.domain.metrics.series import REPORTS
from cloud_ml.domain.quotas import QuotaOf
from cloud_ml.domain.records import Key
from cloud_ml.domain.workloads.record import WorkloadRecord
from cloud_ml.engines.abilities import MetricReports
from cloud_ml.engines.gang import GangKey
from cloud_ml.errors import NotFound, StaleRevision
from cloud_ml.settings.metrics import MetricSettings
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import NOT_READ, FilePosition, ReportFile
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.metrics.events import MetricEvents
from cloud_ml.usecases.metrics.limits import RunLimits
from cloud_ml.usecases.metrics.params import ReportedParams

_PIECES = 8
"""Pieces of files that one call reads; others wait for their turn."""
NO_SETTINGS = TrackingSettings()
_ATTEMPTS = 100
"""So many attempts before the current one are looked at."""


class MetricCollection:
    """Reads on in the files of reports.

    Args:
        engine: Keeps the files.
        store: Keeps the points.
        clock: Dates events.
        settings: What a job may have.
        tracking: The same, of parameters.
        quota_of: What an organisation may have.
    """

    def __init__(
        self,
        engine: Any,
        store: StateStore,
        clock: Clock,
        settings: MetricSettings,
        tracking: TrackingSettings = NO_SETTINGS,
        *,
        quota_of: QuotaOf | None = None,
    ) -> None:
        self._engine: MetricReports | None = engine if isinstance(engine, MetricReports) else None
        self._store = store
        self._events = MetricEvents(store, clock)
        self._end = settings.file_bytes
        self._limits = RunLimits(settings, quota_of)
        self._params = ReportedParams(store, self._events, tracking)
        self._refused_files: set[tuple[str, ReportFile]] = set()
        """Files whose rest is refused: the event is written once."""

    def collect(self, job: WorkloadRecord) -> bool:
        """Read a bounded part of what is new. Returns whether that was all.

        An attempt begins when the one before is over, so the rest of that is read first.
        """
        if self._engine is None:
            return True
        uid, last = job.key.uid, job.status.attempt
        if last == 1 and not self._has_files(self._engine, job):
            return True  # as most jobs: the store has nothing to say about them
        found = self._store.metrics.positions(uid)
        positions = {file: at for file, at in found.items() if file.source == REPORTS}
        first = max([1, last - _ATTEMPTS, *(file.attempt for file in positions)])
        pieces = _PIECES
        for attempt in range(first, last + 1):
            for task in job.spec.workload.tasks:
                file = ReportFile(attempt, task)
                position = positions.get(file, NOT_READ)
                try:
                    while (after := self._read_on(job.key, file, position)) is not None:
                        position, pieces = after, pieces - 1
                        if not pieces:
                            return False
                except StaleRevision:  # another collector was here, and may not be at the end
                    return False
        return True

    def forget(self, uid: str) -> None:
        """The job is gone or over."""
        self._refused_files = {entry for entry in self._refused_files if entry[0] != uid}
        self._params.forget(uid)

    def _has_files(self, engine: MetricReports, job: WorkloadRecord) -> bool:
        """Whether a task of the first attempt has reported anything."""
        key = GangKey(job.key.uid, 1)
        return any(
            engine.read_metrics(key, task, NOT_READ.identity, 0, end=0) is not None
            for task in job.spec.workload.tasks
        )

    def _read_on(self, job: Key, file: ReportFile, at: FilePosition) -> FilePosition | None:
        """Store the next piece of a file. Returns where that ends; ``None`` if nothing is new.

        Raises:
            StaleRevision: Another collector has read on meanwhile.
        """
        assert self._engine is not None
        uid = job.uid
        key = GangKey(uid, file.attempt)
        piece = self._engine.read_metrics(key, file.task, at.identity, at.offset, end=self._end)
        if piece is None:
            return None
        if piece.size > self._end and piece.offset + len(piece.data) >= self._end:
            self._refuse_rest(uid, file)
        read = read_reports(piece.data, full=piece.more)
        if not read.taken:
            return None
        after = FilePosition(piece.identity, piece.offset + read.taken)
        # First: what is read again after a crash finds its parameters there, with the same values.
        self._params.log(uid, read.params)
        try:
            failpoints.here("metrics.append.before")
            appended = self._store.metrics.append(
                uid, file, read.values, before=at, after=after, limits=self._limits.of(job.org)
            )
            failpoints.here("metrics.append.after")
        except NotFound:  # the job is gone
            return None
        if appended.first:
            self._events.refused(uid, appended.refused)
        self._events.first_nan(uid, file, read.values)
        return after

    def _refuse_rest(self, uid: str, file: ReportFile) -> None:
        if (uid, file) not in self._refused_files:
            self._refused_files.add((uid, file))
            self._events.refused(
                uid, [f"reports of {file.task} beyond {self._end} bytes are not kept in an attempt"]
            )
