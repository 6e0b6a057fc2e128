"""Parameters that tasks have reported, kept for the run of their job. Blocking."""

from __future__ import annotations

from collections.abc import Mapping

from cloud_ml.domain.tracking.runs import LogBatch, TrackingLimits
from cloud_ml.errors import InvalidRequest, NotFound
from cloud_ml.models.tracking.run_keys import check_key
from cloud_ml.settings.tracking import TrackingSettings
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.metrics.events import MetricEvents
from cloud_ml.usecases.metrics.limits import NO_METRICS


class ReportedParams:
    """Logs parameters. One that is there keeps its value, as in MLflow.

    Args:
        store: Keeps the parameters.
        events: Tells of those that are not kept.
        settings: What a run may have.
    """

    def __init__(self, store: StateStore, events: MetricEvents, settings: TrackingSettings) -> None:
        self._store = store
        self._events = events
        self._limits = TrackingLimits(settings.params_per_run, settings.tags_per_run)
        self._refused_params: set[tuple[str, str]] = set()

    def log(self, uid: str, params: Mapping[str, str]) -> None:
        """Keep those that are new. Of what is not kept, the first time of each is an event."""
        if not params:
            return
        there = self._store.tracking.params([uid]).get(uid, {})
        for name, value in params.items():
            if name not in there and (fault := _fault(name)):
                self._refuse(uid, name, fault)
            if there.get(name, value) != value:
                text = f"parameter {name[:80]} is {there[name][:80]} and stays so"
                self._refuse(uid, name, f"{text}; {value[:80]} was reported")
        new = {
            name: value for name, value in params.items() if name not in there and not _fault(name)
        }
        if not new:
            return
        try:
            batch = LogBatch(params=new)
            self._store.tracking.log(uid, batch, limits=self._limits, metric_limits=NO_METRICS)
        except InvalidRequest as error:
            self._refuse(uid, "", error.message)
        except NotFound:  # the job is gone
            return

    def forget(self, uid: str) -> None:
        """The job is gone or over."""
        self._refused_params = {entry for entry in self._refused_params if entry[0] != uid}

    def _refuse(self, uid: str, name: str, text: str) -> None:
        if (uid, name) not in self._refused_params and len(self._refused_params) < 10_000:
            self._refused_params.add((uid, name))
            self._events.refused(uid, [text])


def _fault(name: str) -> str:
    """What is wrong with the name of a parameter; empty if nothing is."""
    try:
        check_key("params.key", name)
    except InvalidRequest as error:
        return error.message
    return ""
