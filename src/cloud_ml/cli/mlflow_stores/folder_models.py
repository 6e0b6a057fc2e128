"""Models of a store that is a folder: ``EXPERIMENT/models/ID``, and ``models/NAME/version-N``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cloud_ml.cli.mlflow_stores.safe_files import files_below, folders_in, read_meta, read_small
from cloud_ml.cli.mlflow_stores.stored_models import (
    STAGES,
    StoredLoggedModel,
    StoredRegisteredModel,
    StoredVersion,
    logged_state,
)

_MODELS = "models"
_VERSION = re.compile(r"version-([1-9][0-9]{0,8})")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def read_logged_models(experiment: Path) -> Iterator[StoredLoggedModel]:
    """The logged models in the folder of an experiment."""
    for folder in folders_in(experiment / _MODELS):
        if (meta := read_meta(folder)) is None:
            continue
        files = folder / "artifacts"
        yield StoredLoggedModel(
            id=folder.name,
            name=_text(meta, "name"),
            model_type=_text(meta, "model_type"),
            source_run=_text(meta, "source_run_id"),
            state=logged_state(meta.get("status")),
            params=_texts(folder / "params"),
            tags=_texts(folder / "tags"),
            files=files if files.is_dir() and not files.is_symlink() else None,
        )


def read_registered_models(root: Path) -> Iterator[StoredRegisteredModel]:
    """The registered models of a store."""
    for folder in folders_in(root / _MODELS):
        if (meta := read_meta(folder)) is None:
            continue
        aliases = {
            name: int(text.strip())
            for name, text in _texts(folder / "aliases").items()
            if _NUMBER.fullmatch(text.strip())
        }
        versions = sorted(_versions(folder), key=lambda one: one.number)
        yield StoredRegisteredModel(
            name=_text(meta, "name") or folder.name,
            description=_text(meta, "description"),
            tags=_texts(folder / "tags"),
            aliases=aliases,
            versions=versions,
        )


def _versions(model: Path) -> Iterator[StoredVersion]:
    for folder in folders_in(model):
        number, meta = _VERSION.fullmatch(folder.name), read_meta(folder)
        if number is None or meta is None or meta.get("current_stage") == "Deleted_Internal":
            continue
        stage = _text(meta, "current_stage")
        yield StoredVersion(
            number=int(number[1]),
            source=_text(meta, "source"),
            run=_text(meta, "run_id"),
            logged_model=_text(meta, "model_id"),
            description=_text(meta, "description"),
            stage=stage if stage in STAGES else STAGES[0],
            tags=_texts(folder / "tags"),
        )


def _text(meta: Mapping[str, Any], name: str) -> str:
    value = meta.get(name)
    return "" if value is None else str(value)


def _texts(folder: Path) -> Mapping[str, str]:
    return {key: read_small(path) for key, path in files_below(folder)}
