"""Writes runs of the server as a folder that MLflow's client reads as its store.

Each file appears as a whole, and one that is there is written again, so an export may be repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cloud_ml.cli.display.yamls import dump
from cloud_ml.cli.mlflow_stores.model_export import ModelExport
from cloud_ml.cli.mlflow_stores.safe_files import META
from cloud_ml.cli.mlflow_stores.store_writer import ExportResult, StoreWriter, write_file
from cloud_ml.cli.mlflow_stores.stored_runs import DATASET_KEYS, STATES, USER_TAG
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.tracking.metrics import MetricSeries
from cloud_ml.models.tracking.run import Run, RunExperiment


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
        bucket = client.whoami().default_bucket
        self._writer = StoreWriter(client, bucket, self._result)
        self._models = ModelExport(client, self._root, self._writer, self._result)

    def run(self, experiments: Iterable[RunExperiment]) -> ExportResult:
        """Write these experiments.

        Raises:
            InvalidRequest: The folder cannot be written to.
        """
        try:
            for each in experiments:
                self._write_experiment(each)
            self._models.write_registered_models()
        except OSError as error:
            raise InvalidRequest(
                f"{error.filename or self._root} cannot be written: {error.strerror}",
                field="output", value=str(self._root),
            ) from error  # fmt: skip
        return self._result

    def _write_experiment(self, experiment: RunExperiment) -> None:
        folder = self._writer.below(self._root, experiment.id)
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
        write_file(folder / META, dump(meta))
        self._writer.write_texts(folder / "tags", experiment.tags)
        for run in self._client.runs.search(experiment.name):
            self._write_run(folder, experiment, run)
        self._models.write_logged_models(folder, experiment)

    def _write_run(self, above: Path, experiment: RunExperiment, run: Run) -> None:
        folder = self._writer.below(above, run.uid)
        if folder is None:
            return
        tags = {USER_TAG: run.user, **run.tags, "mlflow.runName": run.name}
        self._writer.write_texts(folder / "tags", tags)
        self._writer.write_texts(folder / "params", run.params)
        # MLflow takes a folder for a run only if it has all of these folders.
        (folder / "metrics").mkdir(parents=True, exist_ok=True)
        for series in _newest(self._client.runs.series(run.uid)):
            self._write_metric(folder / "metrics", run, series)
        self._write_datasets(above, folder, run)
        (folder / "artifacts").mkdir(parents=True, exist_ok=True)
        self._writer.fetch_artifacts(f"{run.uid}/artifacts", folder / "artifacts")
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
        write_file(folder / META, dump(meta))  # last: a run without it is none
        self._result.runs += 1
        self._say(f"{run.name} is in {folder}.")

    def _write_datasets(self, experiment: Path, folder: Path, run: Run) -> None:
        for texts, tags in self._client.runs.datasets(run.uid):
            id_ = _digest(texts["name"], texts.get("digest", ""))
            self._write_meta(
                experiment, f"datasets/{id_}", {key: texts.get(key) for key in DATASET_KEYS}
            )
            link = {
                "destination_id": id_,  # as MLflow itself writes it
                "destination_type": "RUN",
                "source_id": id_,
                "source_type": "DATASET",
                "tags": tags,
            }
            self._write_meta(folder, f"inputs/{_digest(id_, run.uid)}", link)

    def _write_meta(self, above: Path, name: str, content: Mapping[str, Any]) -> None:
        if (path := self._writer.below(above, f"{name}/{META}")) is not None:
            write_file(path, dump(content))

    def _write_metric(self, above: Path, run: Run, series: MetricSeries) -> None:
        path = self._writer.below(above, series.name)
        if path is None:
            return
        points = self._client.runs.all_points(
            run.uid, series.name, task=series.task, source=series.source
        )
        lines = (
            f"{round(one.at.timestamp() * 1000)} {float(one.value)!r} {one.step}\n"
            for one in points
        )
        with self._writer.noting(series.name, above):
            write_file(path, lines)


def _digest(*texts: str) -> str:
    """What MLflow calls a data set, or what links it to a run."""
    return hashlib.md5("".join(texts).encode(), usedforsecurity=False).hexdigest()


def _newest(found: Iterable[MetricSeries]) -> list[MetricSeries]:
    """Of several tasks and sources of a metric, that which reported last, as MLflow shows it."""
    newest: dict[str, MetricSeries] = {}
    for one in found:
        if one.name not in newest or one.last_at > newest[one.name].last_at:
            newest[one.name] = one
    return list(newest.values())
