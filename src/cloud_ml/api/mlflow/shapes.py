"""Answers in the form of MLflow's API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.tracking.artifacts import artifact_uri, model_uri
from cloud_ml.domain.tracking.models import LoggedModelRecord
from cloud_ml.domain.tracking.registry import ModelVersion, RegisteredModel
from cloud_ml.domain.tracking.runs import Experiment, LastValue, RunRow
from cloud_ml.models.tracking.metrics import to_wire
from cloud_ml.usecases.tracking.runs import RUN_NAME_TAG, LoggedRun

_ACTIVE, _DELETED = "active", "deleted"
_USER_TAG = "mlflow.user"


def experiment(one: Experiment) -> dict[str, Any]:
    """An experiment."""
    return {
        "experiment_id": one.id,
        "name": one.name,
        "artifact_location": f"mlflow-artifacts:/{one.id}",
        "lifecycle_stage": _DELETED if one.deleted else _ACTIVE,
        "creation_time": one.created,
        "last_update_time": one.updated,
        "tags": pairs(one.tags),
    }


def run(one: LoggedRun) -> dict[str, Any]:
    """A run with what was logged to it."""
    row = one.row
    tags = {RUN_NAME_TAG: row.name, _USER_TAG: row.user, **one.tags}
    linked = json.loads(row.inputs)
    outputs = [each["model_output"] for each in linked if "model_output" in each]
    return {
        "info": run_info(row),
        "data": {
            "metrics": [metric(value) for value in one.metrics],
            "params": pairs(one.params),
            "tags": pairs(tags),
        },
        "inputs": {
            "dataset_inputs": [each for each in linked if "dataset" in each],
            "model_inputs": [each["model_input"] for each in linked if "model_input" in each],
        },
        "outputs": {"model_outputs": outputs},
    }


def run_info(row: RunRow) -> dict[str, Any]:
    """What a run is, without what was logged to it."""
    found = {
        "run_id": row.uid,
        "run_uuid": row.uid,
        "run_name": row.name,
        "experiment_id": row.experiment,
        "user_id": row.user,
        "status": row.state.value,
        "start_time": row.start,
        "artifact_uri": artifact_uri(row.uid),
        "lifecycle_stage": _DELETED if row.deleted else _ACTIVE,
    }
    return found if row.end is None else {**found, "end_time": row.end}


def metric(value: LastValue) -> dict[str, Any]:
    """The newest value of a metric."""
    return {
        "key": value.name,
        "value": to_wire(value.value),
        "step": value.step,
        "timestamp": value.at,
    }


def point(name: str, one: Point, run_id: str = "") -> dict[str, Any]:
    """A point of a metric."""
    found = {"key": name, "value": to_wire(one.value), "step": one.step, "timestamp": one.at}
    return {**found, "run_id": run_id} if run_id else found


def model(record: LoggedModelRecord) -> dict[str, Any]:
    """A logged model."""
    spec = record.spec
    info = {
        "model_id": record.key.name,
        "experiment_id": spec.experiment,
        "name": spec.name,
        "creation_timestamp_ms": round(record.created_at.timestamp() * 1000),
        "last_updated_timestamp_ms": round(record.updated_at.timestamp() * 1000),
        "artifact_uri": model_uri(record.key.name),
        "status": spec.state.value,
        "model_type": spec.model_type,
        "source_run_id": spec.source_run,
        "tags": pairs(spec.tags),
    }
    return {"model": {"info": info, "data": {"params": pairs(spec.params)}}}


def registered_model(one: RegisteredModel) -> dict[str, Any]:
    """A registered model."""
    record, spec = one.record, one.record.spec
    return {
        "name": record.key.name,
        "creation_timestamp": _milliseconds(record.created_at),
        "last_updated_timestamp": _milliseconds(record.updated_at),
        "user_id": record.owner,
        "description": spec.description,
        "latest_versions": [model_version(each) for each in one.latest],
        "tags": pairs(spec.tags),
        "aliases": [
            {"alias": alias, "version": str(number)}
            for alias, number in sorted(spec.aliases.items())
        ],
    }


def model_version(one: ModelVersion) -> dict[str, Any]:
    """A version of a registered model."""
    record, spec = one.record, one.record.spec
    return {
        "name": one.name,
        "version": str(spec.number),
        "creation_timestamp": _milliseconds(record.created_at),
        "last_updated_timestamp": _milliseconds(record.updated_at),
        "user_id": record.owner,
        "current_stage": spec.stage.value,
        "description": spec.description,
        "source": spec.source,
        "run_id": spec.run,
        "run_link": spec.run_link,
        "status": "READY",
        "tags": pairs(spec.tags),
        "aliases": list(one.aliases),
        **({"model_id": spec.logged_model} if spec.logged_model else {}),
    }


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    """Parameters or tags."""
    return [{"key": key, "value": value} for key, value in sorted(values.items())]
