"""Models of a store that is a database. Stores of before MLflow 3 have no logged models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cloud_ml.cli.mlflow_stores.stored_models import (
    STAGES,
    StoredLoggedModel,
    StoredRegisteredModel,
    StoredVersion,
    logged_state,
)

Rows = Callable[..., Iterator[tuple[Any, ...]]]
"""The rows of a query with values for its parameters."""
_LONGEST_NUMBER = 10**9


def read_logged_models(
    rows: Rows, experiment: str, files: Callable[[str], Path | None]
) -> Iterator[StoredLoggedModel]:
    """The logged models of an experiment; ``files`` tells the folder of one by its id."""
    query = (
        "SELECT model_id, name, model_type, source_run_id, status FROM logged_models"
        " WHERE experiment_id = ? AND COALESCE(lifecycle_stage, 'active') = 'active'"
        " ORDER BY creation_timestamp_ms, model_id"
    )
    params = "SELECT param_key, param_value FROM logged_model_params WHERE model_id = ?"
    tags = "SELECT tag_key, tag_value FROM logged_model_tags WHERE model_id = ?"
    for id_, name, kind, run, state in list(rows(query, experiment)):
        yield StoredLoggedModel(
            id=_text(id_),
            name=_text(name),
            model_type=_text(kind),
            source_run=_text(run),
            state=logged_state(state),
            params=_texts(rows(params, id_)),
            tags=_texts(rows(tags, id_)),
            files=files(_text(id_)),
        )


def read_registered_models(rows: Rows) -> Iterator[StoredRegisteredModel]:
    """The registered models of a store."""
    query = "SELECT name, description FROM registered_models ORDER BY name"
    tags = "SELECT key, value FROM registered_model_tags WHERE name = ?"
    aliases = "SELECT alias, version FROM registered_model_aliases WHERE name = ?"
    for name, description in list(rows(query)):
        yield StoredRegisteredModel(
            name=_text(name),
            description=_text(description),
            tags=_texts(rows(tags, name)),
            aliases={
                _text(alias): number for alias, number in rows(aliases, name) if _is_number(number)
            },
            versions=list(_versions(rows, name)),
        )


def _versions(rows: Rows, name: Any) -> Iterator[StoredVersion]:
    query = (
        "SELECT version, source, run_id, description, current_stage FROM model_versions"
        " WHERE name = ? AND COALESCE(current_stage, 'None') != 'Deleted_Internal' ORDER BY version"
    )
    tags = "SELECT key, value FROM model_version_tags WHERE name = ? AND version = ?"
    for number, source, run, description, stage in list(rows(query, name)):
        if not _is_number(number):
            continue
        uri = _text(source)
        yield StoredVersion(
            number=number,
            source=uri,
            run=_text(run),
            logged_model=uri.removeprefix("models:/") if uri.startswith("models:/m-") else "",
            description=_text(description),
            stage=stage if stage in STAGES else STAGES[0],
            tags=_texts(rows(tags, name, number)),
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and 0 < value < _LONGEST_NUMBER


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _texts(found: Iterator[tuple[Any, ...]]) -> Mapping[str, str]:
    return {_text(key): _text(value) for key, value in found}
