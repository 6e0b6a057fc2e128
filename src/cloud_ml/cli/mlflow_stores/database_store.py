"""The store of MLflow that is a database of SQLite, ``mlflow.db``."""

from __future__ import annotations

import math
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cloud_ml.cli.mlflow_stores import database_models
from cloud_ml.cli.mlflow_stores.safe_files import is_name, unreadable
from cloud_ml.cli.mlflow_stores.stored_models import StoredLoggedModel, StoredRegisteredModel
from cloud_ml.cli.mlflow_stores.stored_runs import (
    DATASET_KEYS,
    STATES,
    RunStore,
    StoredDataset,
    StoredExperiment,
    StoredRun,
)
from cloud_ml.models.tracking.metrics import LoggedValue

_FOLDERS = ("mlruns", "mlartifacts")
_DATASETS = """
    SELECT input_uuid, name, digest, dataset_source_type, dataset_source, dataset_schema, dataset_profile
    FROM inputs JOIN datasets ON dataset_uuid = source_id
    WHERE source_type = 'DATASET' AND destination_type = 'RUN' AND destination_id = ?
    ORDER BY input_uuid
"""
_ACTIVE = "COALESCE(lifecycle_stage, 'active') = 'active'"


class DatabaseStore(RunStore):
    """See ``RunStore``. Reads only.

    Args:
        path: The file.
        artifacts: The folder with ``EXPERIMENT/RUN/artifacts``; ``mlruns`` or ``mlartifacts``
            beside the file by default.
    """

    def __init__(self, path: Path, artifacts: Path | None = None) -> None:
        self._path = path
        self._folders = [artifacts] if artifacts else [path.parent / name for name in _FOLDERS]
        try:
            name = f"file:{quote(str(path.resolve()))}?mode=ro"
            self._database = sqlite3.connect(name, uri=True)
            self._database.execute("PRAGMA trusted_schema = OFF")
        except sqlite3.Error as error:
            raise unreadable(path, str(error)) from error

    def experiments(self) -> Sequence[StoredExperiment]:
        """See ``RunStore.experiments``."""
        query = f"SELECT experiment_id, name FROM experiments WHERE {_ACTIVE}"  # noqa: S608
        tags = "SELECT key, value FROM experiment_tags WHERE experiment_id = ?"
        return [
            StoredExperiment(str(id_), str(name), dict(self._texts(tags, id_)))
            for id_, name in self._rows(query + " ORDER BY experiment_id")
        ]

    def runs(self, experiment: StoredExperiment) -> Sequence[StoredRun]:
        """See ``RunStore.runs``."""
        query = (
            "SELECT run_uuid, name, status, start_time, end_time FROM runs"  # noqa: S608
            f" WHERE experiment_id = ? AND {_ACTIVE} ORDER BY start_time, run_uuid"
        )
        return [
            StoredRun(
                uid=str(uid),
                experiment=experiment.id,
                name=str(name or ""),
                state=state if state in STATES else "FINISHED",
                start=start if isinstance(start, int) else 0,
                end=end if isinstance(end, int) else None,
            )
            for uid, name, state, start, end in self._rows(query, experiment.id)
        ]

    def params(self, run: StoredRun) -> Mapping[str, str]:
        """See ``RunStore.params``."""
        return dict(self._texts("SELECT key, value FROM params WHERE run_uuid = ?", run.uid))

    def tags(self, run: StoredRun) -> Mapping[str, str]:
        """See ``RunStore.tags``."""
        return dict(self._texts("SELECT key, value FROM tags WHERE run_uuid = ?", run.uid))

    def metrics(self, run: StoredRun) -> Sequence[str]:
        """See ``RunStore.metrics``."""
        query = "SELECT DISTINCT key FROM metrics WHERE run_uuid = ? ORDER BY key"
        return [str(key) for (key,) in self._rows(query, run.uid)]

    def values(self, run: StoredRun, metric: str) -> Iterator[LoggedValue]:
        """See ``RunStore.values``. MLflow keeps infinities as the largest numbers."""
        query = (
            "SELECT value, step, timestamp, is_nan FROM metrics WHERE run_uuid = ? AND key = ?"
            " ORDER BY timestamp, step, value"
        )
        for value, step, at, is_nan in self._rows(query, run.uid, metric):
            try:
                number = math.nan if is_nan else _with_infinity(float(value))
                yield LoggedValue(metric, number, int(step), int(at))
            except (TypeError, ValueError) as error:
                raise unreadable(self._path, f"a value of {metric!r} is no number") from error

    def datasets(self, run: StoredRun) -> Sequence[StoredDataset]:
        """See ``RunStore.datasets``."""
        if not self._has_table("inputs"):
            return []
        tags = "SELECT name, value FROM input_tags WHERE input_uuid = ?"
        return [
            StoredDataset(
                {key: str(text) for key, text in zip(DATASET_KEYS, texts, strict=True) if text},
                dict(self._texts(tags, number)),
            )
            for number, *texts in self._rows(_DATASETS, run.uid)
        ]

    def artifacts(self, run: StoredRun) -> Path | None:
        """See ``RunStore.artifacts``."""
        return self._artifacts(run.experiment, run.uid)

    def logged_models(self, experiment: StoredExperiment) -> Iterator[StoredLoggedModel]:
        """See ``RunStore.logged_models``."""
        if not self._has_table("logged_models"):
            return iter(())
        return database_models.read_logged_models(
            self._rows, experiment.id, lambda id_: self._artifacts(experiment.id, "models", id_)
        )

    def registered_models(self) -> Iterator[StoredRegisteredModel]:
        """See ``RunStore.registered_models``."""
        if not self._has_table("registered_model_aliases"):
            return iter(())
        return database_models.read_registered_models(self._rows)

    def _has_table(self, name: str) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return any(self._rows(query, name))

    def _artifacts(self, *parts: str) -> Path | None:
        if not all(map(is_name, parts)):
            return None
        for root in self._folders:
            folder = root.joinpath(*parts, "artifacts")
            if folder.is_dir() and folder.resolve().is_relative_to(root.resolve()):
                return folder
        return None

    def _texts(self, query: str, key: Any) -> Iterator[tuple[str, str]]:
        for name, value in self._rows(query, key):
            yield str(name), "" if value is None else str(value)

    def _rows(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._database.execute(query, values)
        except sqlite3.Error as error:
            raise unreadable(self._path, f"it is no store of MLflow ({error})") from error


def _with_infinity(value: float) -> float:
    largest = sys.float_info.max
    return math.copysign(math.inf, value) if abs(value) == largest else value
