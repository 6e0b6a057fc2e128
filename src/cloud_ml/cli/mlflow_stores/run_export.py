"""Writes runs of the server as a folder that MLflow's client reads as its store.

Each file appears as a whole, and one that is there is written again, so an export may be repeated.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloud_ml.cli.display.yamls import dump
from cloud_ml.cli.mlflow_stores.folder_store import META
from cloud_ml.cli.mlflow_stores.stored_runs import STATES, USER_TAG
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.metrics import MetricSeries
from cloud_ml.models.run import Run, RunExperiment

_LONGEST_NAME = 255


@dataclass
class ExportResult:
    """What an export has written. ``omitted`` tells what could not be written, and why."""

    runs: int = 0
    files: int = 0
    omitted: list[str] = field(default_factory=list)


class RunExport:
    """Writes experiments with their runs.

    Args:
        client: The server.
        root: The folder; it is made if it is not there.
        say: Tells the person how far it is.
    """

    def __init__(self, client: CloudMlClient, root: Path, say: Callable[[str], None]) -> None:
        self._client = client
        self._root = root.resolve()
        self._say = say
        self._result = ExportResult()
        self._bucket = client.whoami().default_bucket

    def run(self, experiments: Iterable[RunExperiment]) -> ExportResult:
        """Write these experiments.

        Raises:
            InvalidRequest: The folder cannot be written to.
        """
        try:
            for each in experiments:
                self._write_experiment(each)
        except OSError as error:
            raise InvalidRequest(
                f"{error.filename or self._root} cannot be written: {error.strerror}",
                field="output", value=str(self._root),
            ) from error  # fmt: skip
        return self._result

    def _write_experiment(self, experiment: RunExperiment) -> None:
        folder = self._below(self._root, experiment.id)
        if folder is None:
            return
        created, updated = (
            round(at.timestamp() * 1000) for at in (experiment.created_at, experiment.updated_at)
        )
        meta = {
            "artifact_location": folder.as_uri(),
            "creation_time": created,
            "experiment_id": experiment.id,
            "last_update_time": updated,
            "lifecycle_stage": "active",
            "name": experiment.name,
        }
        _write(folder / META, dump(meta))
        self._write_texts(folder / "tags", experiment.tags)
        for run in self._client.runs.search(experiment.name):
            self._write_run(folder, experiment, run)

    def _write_run(self, above: Path, experiment: RunExperiment, run: Run) -> None:
        folder = self._below(above, run.uid)
        if folder is None:
            return
        tags = {USER_TAG: run.user, **run.tags, "mlflow.runName": run.name}
        self._write_texts(folder / "tags", tags)
        self._write_texts(folder / "params", run.params)
        for series in _newest(self._client.runs.series(run.uid)):
            self._write_metric(folder / "metrics", run, series)
        (folder / "artifacts").mkdir(parents=True, exist_ok=True)
        self._fetch_artifacts(run.uid, folder / "artifacts")
        meta: dict[str, Any] = {
            "artifact_uri": (folder / "artifacts").as_uri(),
            "end_time": None if run.ended_at is None else round(run.ended_at.timestamp() * 1000),
            "entry_point_name": "",
            "experiment_id": experiment.id,
            "lifecycle_stage": "active",
            "run_id": run.uid,
            "run_name": run.name,
            "run_uuid": run.uid,
            "source_name": "",
            "source_type": 4,
            "source_version": "",
            "start_time": round(run.created_at.timestamp() * 1000),
            "status": STATES.index(run.state) + 1,
            "tags": [],
            "user_id": run.user,
        }
        _write(folder / META, dump(meta))  # last: a run without it is none
        self._result.runs += 1
        self._say(f"{run.name} is in {folder}.")

    def _write_metric(self, above: Path, run: Run, series: MetricSeries) -> None:
        path = self._below(above, series.name)
        if path is None:
            return
        points = self._client.runs.all_points(
            run.uid, series.name, task=series.task, source=series.source
        )
        lines = (
            f"{round(one.at.timestamp() * 1000)} {float(one.value)!r} {one.step}\n"
            for one in points
        )
        with self._noting(series.name, above):
            _write(path, lines)

    def _write_texts(self, folder: Path, texts: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for key, text in texts.items():
            if (path := self._below(folder, key)) is not None:
                with self._noting(key, folder):
                    _write(path, text)

    def _fetch_artifacts(self, uid: str, folder: Path) -> None:
        if not self._bucket:
            return
        prefix = f"mlflow/{uid}/artifacts/"
        for one in self._client.storage.list_objects(f"fds://{self._bucket}/{prefix}"):
            path = self._below(folder, one.key.removeprefix(prefix))
            if path is None or (path.is_file() and path.stat().st_size == one.size):
                continue
            with self._noting(one.key, folder):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._client.storage.download(f"fds://{one.bucket}/{one.key}", path)
                self._result.files += 1

    def _below(self, folder: Path, name: str) -> Path | None:
        """The path of a name that somebody else may have chosen; ``None`` if it leaves the folder,
        also by a link.
        """
        parts = name.split("/")
        wrong = any(part in ("", ".", "..") or "\0" in part for part in parts)
        wrong = wrong or any(len(part.encode()) > _LONGEST_NAME for part in parts)
        path = folder.joinpath(*parts) if not wrong else folder
        if wrong or not path.resolve().is_relative_to(folder.resolve()):
            self._result.omitted.append(f"{name[:200]!r} is no path below {folder}")
            return None
        return path

    @contextlib.contextmanager
    def _noting(self, name: str, folder: Path) -> Any:
        """Leave out what has no room beside others: a metric ``a`` and one ``a/b``."""
        try:
            yield
        except (NotADirectoryError, IsADirectoryError, FileExistsError):
            self._result.omitted.append(
                f"{name[:200]!r} in {folder}: another name is the beginning of its path"
            )


def _newest(found: Iterable[MetricSeries]) -> list[MetricSeries]:
    """Of several tasks and sources of a metric, that which reported last, as MLflow shows it."""
    newest: dict[str, MetricSeries] = {}
    for one in found:
        if one.name not in newest or one.last_at > newest[one.name].last_at:
            newest[one.name] = one
    return list(newest.values())


def _write(path: Path, content: str | Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="", dir=path.parent, prefix=".draft-", delete=False
    ) as draft:
        try:
            draft.writelines([content] if isinstance(content, str) else content)
            draft.close()
            Path(draft.name).chmod(0o644)
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise
