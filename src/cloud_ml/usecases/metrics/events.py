"""Events about the metrics of jobs. Blocking."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import EVENT_FILES, LOG
from cloud_ml.domain.records import Event, EventType
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import ReportFile
from cloud_ml.usecases.clock import Clock

_NAMED = 5
"""Refused series that an event names."""
_WHERE = {EVENT_FILES: "event file", LOG: "log"}


class MetricEvents:
    """Warns of what is wrong with the metrics of a job."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def refused(self, uid: str, sentences: Sequence[str]) -> None:
        """Tell what is not kept. The same is told once, however many tasks and files it is about."""
        more = len(sentences) - _NAMED
        rest = f"; and {more} more" if more > 0 else ""
        words = "; ".join(sentences[:_NAMED]) + rest
        events = self._store.events(uid)
        if not any((one.reason, one.message) == (Reason.METRICS_REFUSED, words) for one in events):
            self._warn(uid, Reason.METRICS_REFUSED, words)

    def unreadable(self, uid: str, sentence: str) -> None:
        """Tell that a file is not read any more."""
        self._warn(uid, Reason.METRIC_FILE_UNREADABLE, sentence)

    def first_nan(self, uid: str, file: ReportFile, values: Sequence[Value]) -> None:
        """Tell of metrics that are NaN for the first time: all that the series has came just now."""
        found: dict[str, list[Value]] = {}
        for value in values:
            if math.isnan(value.value):
                found.setdefault(value.name, []).append(value)
        if not found:
            return
        for series in self._store.metrics.series_of([uid], found).get(uid, ()):
            new = found[series.name]
            same = (series.task, series.source) == (file.task, file.source)
            if same and series.nan == len(new):
                step = new[0].step
                since = "" if step is None else f" since step {step}"
                where = _WHERE.get(file.source)
                place = file.task if where is None else f"{file.task}, {where}"
                self._warn(uid, Reason.METRIC_IS_NAN, f"{series.name} is NaN{since} ({place})")

    def _warn(self, uid: str, reason: Reason, words: str) -> None:
        self._store.add_event(uid, Event(self._clock(), reason, words, EventType.WARNING))
