"""The registry of models: names, and numbered versions that point to files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cloud_ml.domain.records import Kind, Record
from cloud_ml.domain.tracking.matching import FilteredEntity
from cloud_ml.domain.tracking.runs import RunStatus

_PROMPT_TAG = "mlflow.prompt.is_prompt"
"""Clients tell models from prompts by it. Models lack it, and count as having it false."""


class Stage(StrEnum):
    """As in MLflow."""

    NONE = "None"
    STAGING = "Staging"
    PRODUCTION = "Production"
    ARCHIVED = "Archived"


@dataclass(frozen=True)
class RegisteredModelSpec:
    """A name for versions. The name of the record is that of the model.

    ``id`` stays when the model is renamed: its versions belong to it. ``last_version`` is the number
    that was given last. ``aliases`` have the numbers of versions. ``last_promotion`` is the number of
    the last change of a stage.
    """

    id: str
    description: str = ""
    last_version: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, int] = field(default_factory=dict)
    last_promotion: int = 0


@dataclass(frozen=True)
class ModelVersionSpec:
    """A version of the model with the id ``model``; ``source`` is the URI of its files.

    ``promotion`` is the number that the change to its stage got from the model: of two changes at the
    same time, at different servers too, the larger number is the later one.
    """

    model: str
    number: int
    source: str
    run: str = ""
    run_link: str = ""
    logged_model: str = ""
    description: str = ""
    stage: Stage = Stage.NONE
    promotion: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)


def id_tag(model: str) -> str:
    """Finds the registered model of an id."""
    return f"id={model}"


def model_tag(model: str) -> str:
    """Finds the versions of a model."""
    return f"model={model}"


def stage_tag(model: str, stage: Stage) -> str:
    """Finds the versions of a model in a stage."""
    return f"stage={model}/{stage}"


def run_tag(run: str) -> str:
    """Finds the versions that were made by a run."""
    return f"run={run}"


def _tags_of_model(spec: RegisteredModelSpec) -> Collection[str]:
    return (id_tag(spec.id),)


def _tags_of_version(spec: ModelVersionSpec) -> Collection[str]:
    tags = [model_tag(spec.model), stage_tag(spec.model, spec.stage)]
    return [*tags, run_tag(spec.run)] if spec.run else tags


REGISTERED_MODEL = Kind(
    "registered_model", RegisteredModelSpec, RunStatus, spec_tags=_tags_of_model
)
MODEL_VERSION = Kind("model_version", ModelVersionSpec, RunStatus, spec_tags=_tags_of_version)
ModelRecord = Record[RegisteredModelSpec, RunStatus]
VersionRecord = Record[ModelVersionSpec, RunStatus]


@dataclass(frozen=True)
class RegisteredModel:
    """A registered model with the newest version of each stage."""

    record: ModelRecord
    latest: tuple[ModelVersion, ...] = ()


@dataclass(frozen=True)
class ModelVersion:
    """A version with the name of its model, and the aliases that it has."""

    record: VersionRecord
    name: str
    aliases: tuple[str, ...] = ()


def describe_version(record: VersionRecord, model: ModelRecord) -> ModelVersion:
    """A version as the record of its model has it."""
    aliases = model.spec.aliases.items()
    mine = sorted(alias for alias, number in aliases if number == record.spec.number)
    return ModelVersion(record, model.key.name, tuple(mine))


def facts_of_registered(record: ModelRecord) -> FilteredEntity:
    """What a filter may look at of a registered model."""
    return FilteredEntity(
        {"name": record.key.name, **_times(record.created_at, record.updated_at)},
        tags={_PROMPT_TAG: "false", **record.spec.tags},
    )


def facts_of_version(record: VersionRecord, name: str) -> FilteredEntity:
    """What a filter may look at of a version."""
    spec = record.spec
    return FilteredEntity(
        {
            "name": name,
            "version_number": spec.number,
            "run_id": spec.run,
            "source_path": spec.source,
            **_times(record.created_at, record.updated_at),
        },
        tags={_PROMPT_TAG: "false", **spec.tags},
    )


def _times(created: datetime, updated: datetime) -> dict[str, float]:
    return {
        "creation_timestamp": created.timestamp() * 1000,
        "last_updated_timestamp": updated.timestamp() * 1000,
    }
