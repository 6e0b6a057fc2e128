"""The store of MLflow that is a folder: ``mlruns/EXPERIMENT/RUN`` with a file for each thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloud_ml.cli.mlflow_stores import folder_models
from cloud_ml.cli.mlflow_stores.safe_files import (
    META,
    files_below,
    folders_in,
    is_name,
    open_regular,
    read_meta,
    read_small,
    unreadable,
)
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

_LONGEST_LINE = 4096


class FolderStore(RunStore):
    """See ``RunStore``.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def experiments(self) -> Sequence[StoredExperiment]:
        """See ``RunStore.experiments``."""
        found = []
        for folder in folders_in(self._root):
            if (meta := read_meta(folder)) is None:
                continue
            tags = {key: read_small(path) for key, path in files_below(folder / "tags")}
            found.append(StoredExperiment(folder.name, str(meta.get("name", folder.name)), tags))
        return found

    def runs(self, experiment: StoredExperiment) -> Sequence[StoredRun]:
        """See ``RunStore.runs``."""
        found = []
        for folder in folders_in(self._root / experiment.id):
            meta = read_meta(folder)
            if meta is None or "run_id" not in meta:
                continue
            name = folder / "tags" / "mlflow.runName"
            found.append(
                StoredRun(
                    uid=folder.name,
                    experiment=experiment.id,
                    name=str(meta.get("run_name") or (read_small(name) if name.is_file() else "")),
                    state=_state(folder, meta.get("status")),
                    start=_whole_number(folder, "start_time", meta.get("start_time") or 0),
                    end=None
                    if meta.get("end_time") is None
                    else _whole_number(folder, "end_time", meta["end_time"]),
                )
            )
        return sorted(found, key=lambda run: (run.start, run.uid))

    def params(self, run: StoredRun) -> Mapping[str, str]:
        """See ``RunStore.params``."""
        return self._texts(run, "params")

    def tags(self, run: StoredRun) -> Mapping[str, str]:
        """See ``RunStore.tags``."""
        return self._texts(run, "tags")

    def metrics(self, run: StoredRun) -> Sequence[str]:
        """See ``RunStore.metrics``."""
        return [key for key, _ in files_below(self._folder(run) / "metrics")]

    def values(self, run: StoredRun, metric: str) -> Iterator[LoggedValue]:
        """See ``RunStore.values``."""
        path = self._folder(run) / "metrics" / metric
        with open_regular(path) as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                yield read_value(path, number, metric, line)

    def datasets(self, run: StoredRun) -> Sequence[StoredDataset]:
        """See ``RunStore.datasets``."""
        found = []
        for folder in folders_in(self._folder(run) / "inputs"):
            meta = read_meta(folder) or {}
            id_ = str(meta.get("source_id", ""))
            if meta.get("source_type") != "DATASET" or not is_name(id_):
                continue
            above = self._root / run.experiment / "datasets" / id_
            if (texts := read_meta(above)) is not None and not above.is_symlink():
                found.append(StoredDataset(_texts_of(texts), _tags_of(meta)))
        return found

    def artifacts(self, run: StoredRun) -> Path | None:
        """See ``RunStore.artifacts``."""
        folder = self._folder(run) / "artifacts"
        return folder if folder.is_dir() and not folder.is_symlink() else None

    def logged_models(self, experiment: StoredExperiment) -> Iterator[StoredLoggedModel]:
        """See ``RunStore.logged_models``."""
        return folder_models.read_logged_models(self._root / experiment.id)

    def registered_models(self) -> Iterator[StoredRegisteredModel]:
        """See ``RunStore.registered_models``."""
        return folder_models.read_registered_models(self._root)

    def _folder(self, run: StoredRun) -> Path:
        return self._root / run.experiment / run.uid

    def _texts(self, run: StoredRun, what: str) -> Mapping[str, str]:
        return {key: read_small(path) for key, path in files_below(self._folder(run) / what)}


def read_value(path: Path, number: int, metric: str, line: bytes) -> LoggedValue:
    """A line of a file of a metric: time, value and step; more is left out.

    Raises:
        InvalidRequest: It is none.
    """
    words = line.split()
    try:
        at, value = int(words[0]), float(words[1])
        step = int(words[2]) if len(words) > 2 else 0
    except (ValueError, IndexError) as error:
        raise unreadable(path, f"line {number} is not TIME VALUE STEP") from error
    return LoggedValue(metric, value, step, at)


def _texts_of(meta: Mapping[str, Any]) -> Mapping[str, str]:
    return {key: str(meta[key]) for key in DATASET_KEYS if meta.get(key)}


def _tags_of(meta: Mapping[str, Any]) -> Mapping[str, str]:
    tags = meta.get("tags")
    return {str(key): str(tags[key]) for key in tags} if isinstance(tags, Mapping) else {}


def _state(folder: Path, value: Any) -> str:
    if isinstance(value, int) and 1 <= value <= len(STATES):
        return STATES[value - 1]
    if value in STATES:
        return str(value)
    raise unreadable(folder / META, f"status is {str(value)[:80]!r}")


def _whole_number(folder: Path, name: str, value: Any) -> int:
    if isinstance(value, int):
        return value
    raise unreadable(folder / META, f"{name} is {str(value)[:80]!r}, which is no time")
