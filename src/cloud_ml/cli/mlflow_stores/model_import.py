"""Brings logged and registered models of a store of MLflow to the server, behind their runs.

A logged model and a version carry ``SOURCE_TAG`` with what they are in the store, and a logged model
carries ``DONE_TAG`` once its files are there: so an import that was interrupted is continued. A version
keeps its number. A registered model that the server has of its own is left alone.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.cli.mlflow_stores.safe_files import files_below, open_regular
from cloud_ml.cli.mlflow_stores.stored_models import (
    STAGES,
    StoredLoggedModel,
    StoredRegisteredModel,
    StoredVersion,
    owner_and_path,
)
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import CloudMlError, InvalidRequest, NotFound, TransportError
from cloud_ml.models.tracking.run import RunExperiment
from cloud_ml.sdk.failures import AlreadyCarriedOut

SOURCE_TAG, DONE_TAG = "cloudml.import.source", "cloudml.import.done"
_MADE_BY_STORE = "mlflow.modelVersions"
_DESCRIPTION, _MOST_BYTES = "MLmodel", 1 << 20
_MOST_GAP = 1000
_ID = re.compile(rb"^((?:model_id|model_uuid|run_id): )[\'\"]?([\w.-]+)[\'\"]?$", re.MULTILINE)


@dataclass
class _ModelsOfServer:
    """Logged models of the server: their ids, and those that were imported by their ids in stores."""

    ids: set[str] = field(default_factory=set)
    sources: dict[str, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)


class ModelImport:
    """Imports the models of one store.

    Args:
        client: The server.
        uids: The runs on the server, by their ids in the store.
        bucket: The bucket of artifacts.
    """

    def __init__(self, client: CloudMlClient, uids: Mapping[str, str], bucket: str) -> None:
        self._client = client
        self._registry = client.model_registry
        self._uids = uids
        self._bucket = bucket
        self._ids: dict[str, str] = {}
        self._there: dict[str, _ModelsOfServer] = {}
        self.models = 0
        self.versions = 0
        self.files = 0
        self.failed: list[str] = []
        self.notes: list[str] = []

    def bring_logged_model(self, stored: StoredLoggedModel, experiment: RunExperiment) -> None:
        """Bring a model that a run has logged."""
        try:
            self._bring_logged_model(stored, experiment)
        except TransportError:
            raise
        except CloudMlError as error:
            self.failed.append(f"logged model {stored.id}: {error.message}")

    def _bring_logged_model(self, stored: StoredLoggedModel, experiment: RunExperiment) -> None:
        there = self._models_of(experiment)
        if stored.id in there.ids:  # the store is an export of this server
            self._ids[stored.id] = stored.id
            return
        if stored.id in there.done:
            self._ids[stored.id] = there.sources[stored.id]
            return
        known = there.sources.get(stored.id)
        self._ids[stored.id] = known or self._create(stored, experiment)
        id_ = self._ids[stored.id]
        if stored.files is not None:
            self._send_files(stored.files, id_)
        if run := self._uids.get(stored.source_run, ""):
            self._registry.log_outputs(run, [id_])
        self._registry.finish_logged_model(id_, stored.state, {DONE_TAG: "true"})
        self.models += 1

    def _models_of(self, experiment: RunExperiment) -> _ModelsOfServer:
        """The logged models that the server has in an experiment, read once."""
        if experiment.id not in self._there:
            found = _ModelsOfServer()
            for document in self._registry.logged_models(experiment.id):
                info = document["info"]
                tags = {one["key"]: one.get("value", "") for one in info.get("tags", ())}
                id_ = str(info["model_id"])
                found.ids.add(id_)
                if source := tags.get(SOURCE_TAG):
                    found.sources[source] = id_
                    if DONE_TAG in tags:
                        found.done.add(source)
            self._there[experiment.id] = found
        return self._there[experiment.id]

    def _create(self, stored: StoredLoggedModel, experiment: RunExperiment) -> str:
        kept = {key: value for key, value in stored.tags.items() if key != _MADE_BY_STORE}
        return self._registry.create_logged_model(
            experiment.id,
            stored.name,
            model_type=stored.model_type,
            source_run=self._uids.get(stored.source_run, ""),
            params=stored.params,
            tags={**kept, SOURCE_TAG: stored.id},
        )

    def _send_files(self, folder: Path, id_: str) -> None:
        prefix = f"fds://{self._bucket}/mlflow/models/{id_}/"
        for name, path in files_below(folder):
            if name == _DESCRIPTION:
                self._send_description(path, prefix + name)
            else:
                self._client.storage.upload_file(path, prefix + name)
            self.files += 1

    def _send_description(self, path: Path, uri: str) -> None:
        """Send the file that says what a model is, with the ids that the server knows."""
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            self._client.storage.upload_file(path, uri)
            return

        def known(found: re.Match[bytes]) -> bytes:
            old = found[2].decode("ascii", "replace")
            new = self._ids.get(old) or self._uids.get(old) or old
            return found[1] + new.encode()

        with tempfile.NamedTemporaryFile() as changed:
            changed.write(_ID.sub(known, content))
            changed.flush()
            self._client.storage.upload_file(Path(changed.name), uri)

    # ---- registered models

    def bring_registered_model(self, stored: StoredRegisteredModel) -> None:
        """Bring a registered model with its versions, tags, stages and aliases."""
        try:
            self._bring_registered_model(stored)
        except TransportError:
            raise
        except CloudMlError as error:
            self.failed.append(f"registered model {stored.name}: {error.message}")

    def _bring_registered_model(self, stored: StoredRegisteredModel) -> None:
        sources = {one.number: self._source(one) for one in stored.versions}
        missing = [number for number, uri in sources.items() if not uri]
        if missing:
            numbers = ", ".join(map(str, missing))
            self.notes.append(
                f"not imported: versions {numbers} of {stored.name}: their files are in no run and "
                "no logged model that was imported"
            )
        versions = [one for one in stored.versions if sources[one.number]]
        if stored.versions and not versions:
            return
        if not self._have_model(stored):
            self.notes.append(
                f"not imported: the registered model {stored.name}, since the server has one of "
                "this name that was not imported"
            )
            return
        there = {
            tag["value"]: int(one["version"])
            for one in self._registry.versions(stored.name)
            for tag in one.get("tags", ())
            if tag["key"] == SOURCE_TAG
        }
        for one in versions:
            source = f"{stored.name}/{one.number}"
            if source not in there:
                there[source] = self._bring_version(stored.name, one, sources[one.number], source)
        for alias, number in stored.aliases.items():
            if (known := there.get(f"{stored.name}/{number}")) is not None:
                self._registry.set_alias(stored.name, alias, known)

    def _have_model(self, stored: StoredRegisteredModel) -> bool:
        """Make the model, or find the one that was imported."""
        try:
            found = self._registry.model(stored.name)
        except NotFound:
            tags = {**stored.tags, SOURCE_TAG: stored.name}
            # a try whose answer was lost has made it
            with contextlib.suppress(AlreadyCarriedOut):
                self._registry.create_model(stored.name, stored.description, tags)
            return True
        return any(tag["key"] == SOURCE_TAG for tag in found.get("tags", ()))

    def _bring_version(self, name: str, one: StoredVersion, uri: str, source: str) -> int:
        """Add a version with the number that it has in the store. Those before it that the store has
        no more are made and deleted.
        """
        for _ in range(_MOST_GAP):
            number = self._registry.create_version(
                name,
                uri,
                run=self._uids.get(one.run, ""),
                logged_model=self._ids.get(one.logged_model, ""),
                description=one.description,
                tags={**one.tags, SOURCE_TAG: source},
            )
            if number >= one.number:
                break
            self._registry.delete_version(name, number)
        else:
            raise InvalidRequest(f"more than {_MOST_GAP} numbers before version {one.number}")
        if number != one.number:
            self.notes.append(f"version {one.number} of {name} has the number {number} here")
        if one.stage != STAGES[0]:
            self._registry.set_stage(name, number, one.stage)
        self.versions += 1
        return number

    def _source(self, one: StoredVersion) -> str:
        """Where the files of a version are on the server; empty if they were not imported."""
        if one.logged_model in self._ids:
            return f"models:/{self._ids[one.logged_model]}"
        owner, path = owner_and_path(one.source)
        if owner in self._ids:
            return f"models:/{self._ids[owner]}"
        run = self._uids.get(owner, "")
        return f"runs:/{run}/{path}" if run else ""
