"""Runs that the tests search and change, in few words."""

from __future__ import annotations

from typing import Any

from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import MetricLimits
from cloud_ml.domain.tracking.filters import parse_filter, parse_order
from cloud_ml.domain.tracking.runs import (
    RUN,
    LogBatch,
    NewRun,
    RunSpec,
    RunState,
    RunStatus,
    TrackingLimits,
)
from cloud_ml.state.base import Once, StateStore
from cloud_ml.state.tracking import RunSearch
from cloud_ml.testing.state.samples import NOW

LIMITS, METRICS = TrackingLimits(params=3, tags=3), MetricLimits(series=5, points=100)


def add_run(store: StateStore, name: str, org: str = "red", **row: Any) -> str:
    """The uid of a new run."""
    run = NewRun(**{"name": name, "state": RunState.RUNNING, "start": 1000, **row})
    record = store.create(
        RUN, org=org, name=f"run-{name}", owner="ann", spec=RunSpec(), status=RunStatus(),
        now=NOW, run=run,
    )  # fmt: skip
    return record.key.uid


def log(store: StateStore, uid: str, *, once: Once | None = None, **batch: Any) -> None:
    values = [Value(name, 0, 1, value) for name, value in batch.pop("metrics", {}).items()]
    store.tracking.log(
        uid, LogBatch(values=values, **batch), limits=LIMITS, metric_limits=METRICS, once=once
    )


def found(
    store: StateStore, text: str = "", *order: str, org: str = "red", **more: Any
) -> list[str]:
    """The names of the runs that fulfil a filter."""
    run_search = RunSearch(
        org,
        conditions=parse_filter(text),
        order=parse_order(order),
        **more,
    )
    return [run.name for run in store.tracking.search(run_search).items]


def data_set(name: str, digest: str, *, context: str | None = None) -> dict[str, Any]:
    """A data set as MLflow's client notes it."""
    tags = [{"key": "team", "value": "train"}]
    if context is not None:
        tags.append({"key": "mlflow.data.context", "value": context})
    return {"dataset": {"name": name, "digest": digest, "source": "s"}, "tags": tags}
