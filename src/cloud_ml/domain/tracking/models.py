"""Models that were logged with MLflow 3: their files are artifacts, and runs refer to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.tracking.matching import FilteredEntity
from cloud_ml.domain.tracking.runs import RunStatus


class ModelState(StrEnum):
    """As in MLflow."""

    PENDING = "LOGGED_MODEL_PENDING"
    READY = "LOGGED_MODEL_READY"
    UPLOAD_FAILED = "LOGGED_MODEL_UPLOAD_FAILED"


@dataclass(frozen=True)
class LoggedModelSpec:
    """What is known of a model. The name of its record is its id."""

    experiment: str
    name: str = ""
    model_type: str = ""
    source_run: str = ""
    state: ModelState = ModelState.PENDING
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


LOGGED_MODEL = Kind("logged_model", LoggedModelSpec, RunStatus)
LoggedModelRecord = Record[LoggedModelSpec, RunStatus]


def facts_of_model(record: LoggedModelRecord) -> FilteredEntity:
    """What a filter may look at of a model."""
    spec = record.spec
    return FilteredEntity(
        {
            "model_id": record.key.name,
            "name": spec.name,
            "model_type": spec.model_type,
            "status": spec.state.value.removeprefix("LOGGED_MODEL_"),
            "source_run_id": spec.source_run,
            "experiment_id": spec.experiment,
            "creation_timestamp": record.created_at.timestamp() * 1000,
            "last_updated_timestamp": record.updated_at.timestamp() * 1000,
        },
        spec.params,
        spec.tags,
    )
