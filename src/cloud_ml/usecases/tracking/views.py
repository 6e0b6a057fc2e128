"""Runs and experiments as the modern surface shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

from cloud_ml.domain.tracking.runs import Experiment
from cloud_ml.models.tracking.metrics import format_milliseconds, moment_of, to_wire
from cloud_ml.models.tracking.run import Run, RunExperiment
from cloud_ml.usecases.tracking.runs import LoggedRun


def run_view(
    run: LoggedRun, experiments: Mapping[str, str], columns: Collection[str] | None = None
) -> Run:
    """A run; with ``columns``, only these of its metrics and parameters.

    Args:
        run: The run.
        experiments: The names of experiments by their ids.
        columns: Names of metrics and parameters.
    """
    row = run.row
    shown = None if columns is None else frozenset(columns)
    return Run(
        uid=row.uid,
        name=row.name,
        experiment=experiments.get(row.experiment, row.experiment),
        experiment_id=row.experiment,
        is_job=row.is_job,
        user=row.user,
        state=row.state.value,
        created_at=moment_of(row.start),
        ended_at=None if row.end is None else moment_of(row.end),
        metrics={
            one.name: to_wire(one.value)
            for one in run.metrics
            if shown is None or one.name in shown
        },
        params={key: value for key, value in run.params.items() if shown is None or key in shown},
        tags=dict(run.tags),
        revision=row.revision,
        deleted=row.deleted,
    )


def run_document(
    run: LoggedRun, experiments: Mapping[str, str], columns: Collection[str] | None = None
) -> dict[str, Any]:
    """What ``run_view`` is in JSON, made faster: lists have many of them."""
    row, names = run.row, None if columns is None else frozenset(columns)
    params: Mapping[str, str] = run.params
    if names is not None:
        params = {key: value for key, value in params.items() if key in names}
    return {
        "uid": row.uid,
        "name": row.name,
        "experiment": experiments.get(row.experiment, row.experiment),
        "experiment_id": row.experiment,
        "is_job": row.is_job,
        "user": row.user,
        "state": row.state.value,
        "created_at": format_milliseconds(row.start),
        "ended_at": None if row.end is None else format_milliseconds(row.end),
        "metrics": {
            name: value if isfinite(value) else to_wire(value)
            for name, value, _, _ in run.metrics
            if names is None or name in names
        },
        "params": params,
        "tags": run.tags,
        "revision": row.revision,
        "deleted": row.deleted,
    }


def experiment_view(experiment: Experiment) -> RunExperiment:
    """An experiment."""
    return RunExperiment(
        id=experiment.id,
        name=experiment.name,
        created_at=moment_of(experiment.created),
        updated_at=moment_of(experiment.updated),
        tags=dict(experiment.tags),
        revision=experiment.revision,
        deleted=experiment.deleted,
    )
