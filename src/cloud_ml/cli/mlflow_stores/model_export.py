"""Writes logged and registered models of the server into a folder that MLflow reads as its store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloud_ml.cli.display.yamls import dump
from cloud_ml.cli.mlflow_stores.safe_files import META
from cloud_ml.cli.mlflow_stores.store_writer import ExportResult, StoreWriter, write_file
from cloud_ml.cli.mlflow_stores.stored_models import LOGGED_STATES, STAGES, owner_and_path
from cloud_ml.client import CloudMlClient
from cloud_ml.models.tracking.run import RunExperiment

_OUTPUT = {"destination_type": "MODEL_OUTPUT", "source_type": "RUN_OUTPUT", "step": 0, "tags": {}}
Document = Mapping[str, Any]


class ModelExport:
    """Writes models beside the runs of an export.

    Args:
        client: The server.
        root: The folder of the store.
        writer: Writes below it.
        result: Counts what was written.
    """

    def __init__(
        self, client: CloudMlClient, root: Path, writer: StoreWriter, result: ExportResult
    ) -> None:
        self._registry = client.model_registry
        self._root = root
        self._writer = writer
        self._result = result
        self._files: dict[str, Path] = {}

    def write_logged_models(self, above: Path, experiment: RunExperiment) -> None:
        """Write the logged models of an experiment, whose runs are in ``above`` already."""
        for document in self._registry.logged_models(experiment.id):
            info = document["info"]
            id_ = str(info["model_id"])
            folder = self._writer.below(above / "models", id_)
            if folder is None:
                continue
            files = folder / "artifacts"
            files.mkdir(parents=True, exist_ok=True)
            self._writer.fetch_artifacts(f"models/{id_}", files)
            self._writer.write_texts(folder / "tags", _table(info.get("tags", ())))
            params = _table(document.get("data", {}).get("params", ()))
            self._writer.write_texts(folder / "params", params)
            state = info.get("status")
            run = info.get("source_run_id") or None
            meta = {
                "artifact_location": files.as_uri(),
                "creation_timestamp": int(info["creation_timestamp_ms"]),
                "experiment_id": experiment.id,
                "last_updated_timestamp": int(info["last_updated_timestamp_ms"]),
                "model_id": id_,
                "model_type": info.get("model_type") or None,
                "name": info.get("name", ""),
                "source_run_id": run,
                "status": LOGGED_STATES.index(state) if state in LOGGED_STATES else state,
                "status_message": None,
            }
            write_file(folder / META, dump(meta))
            self._files[id_] = files
            self._result.models += 1
            source = None if run is None else self._writer.below(above, run)
            if run is not None and source is not None and (source / META).is_file():
                output = {**_OUTPUT, "destination_id": id_, "source_id": run}
                write_file(source / "outputs" / id_ / META, dump(output))

    def write_registered_models(self) -> None:
        """Write the registered models that have a version with files in the folder."""
        for model in self._registry.models():
            name = str(model["name"])
            versions = [
                (one, files)
                for one in self._registry.versions(name)
                if (files := self._files_of(str(one.get("source", "")))) is not None
            ]
            folder = self._writer.below(self._root / "models", name) if versions else None
            if folder is None or "/" in name:
                continue
            for one, files in versions:
                self._write_version(folder, one, files)
            numbers = {int(one["version"]) for one, _ in versions}
            aliases = {
                str(one["alias"]): str(one["version"])
                for one in model.get("aliases", ())
                if int(one["version"]) in numbers
            }
            self._writer.write_texts(folder / "aliases", aliases)
            self._writer.write_texts(folder / "tags", _table(model.get("tags", ())))
            meta = {
                "aliases": aliases,
                "creation_timestamp": int(model["creation_timestamp"]),
                "description": model.get("description") or None,
                "last_updated_timestamp": int(model["last_updated_timestamp"]),
                "name": name,
            }
            write_file(folder / META, dump(meta))

    def _write_version(self, model: Path, one: Document, files: Path) -> None:
        folder = model / f"version-{int(one['version'])}"
        owner, _ = owner_and_path(str(one["source"]))
        self._writer.write_texts(folder / "tags", _table(one.get("tags", ())))
        meta = {
            "creation_timestamp": int(one["creation_timestamp"]),
            "current_stage": one.get("current_stage") or STAGES[0],
            "description": one.get("description") or None,
            "last_updated_timestamp": int(one["last_updated_timestamp"]),
            "model_id": owner if owner in self._files else None,
            "name": one["name"],
            "run_id": one.get("run_id") or None,
            "run_link": None,
            "source": one["source"],
            "status": "READY",
            "status_message": None,
            "storage_location": files.as_uri(),
            "user_id": None,
            "version": int(one["version"]),
        }
        write_file(folder / META, dump(meta))

    def _files_of(self, source: str) -> Path | None:
        """The folder with the files of a version, if it is here."""
        owner, path = owner_and_path(source)
        if owner in self._files:
            return self._writer.below(self._files[owner], path) if path else self._files[owner]
        for folder in self._root.glob("*/"):
            run = self._writer.below(folder, owner) if owner else None
            if run is not None and (run / META).is_file():
                files = run / "artifacts"
                return self._writer.below(files, path) if path else files
        return None


def _table(pairs: Sequence[Document]) -> dict[str, str]:
    return {str(one["key"]): str(one.get("value", "")) for one in pairs}
