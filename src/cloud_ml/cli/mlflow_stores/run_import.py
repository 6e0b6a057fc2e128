"""Brings the runs of a store of MLflow to the server. What is there already is left alone.

Each run carries the tag ``SOURCE_TAG`` with its id in the store, and ``DONE_TAG`` once all of it is
there. So an import that was interrupted is continued by the next one, and a second import changes
nothing. How many points of a metric are there says where its values go on: they are sent in an order
that is always the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

from cloud_ml.cli.mlflow_stores.model_import import DONE_TAG, SOURCE_TAG, ModelImport
from cloud_ml.cli.mlflow_stores.safe_files import files_below, links_below
from cloud_ml.cli.mlflow_stores.stored_runs import (
    ENDED,
    PARENT_TAG,
    RunStore,
    StoredExperiment,
    StoredRun,
)
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import AlreadyExists, CloudMlError, NotFound, TransportError
from cloud_ml.models.tracking.metrics import LoggedValue
from cloud_ml.models.tracking.run import Run, RunExperiment
from cloud_ml.sdk.failures import AlreadyCarriedOut

_OURS = "cloudml."
_VALUES, _PAIRS = 1000, 100
"""Of one request."""
T = TypeVar("T")


@dataclass
class ImportResult:
    """What an import has done. ``failed`` tells why runs could not be brought."""

    made: int = 0
    continued: int = 0
    unchanged: int = 0
    files: int = 0
    models: int = 0
    versions: int = 0
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class RunImport:
    """Imports one store.

    Args:
        client: The server.
        store: What is imported.
        say: Tells the person how far it is.
    """

    def __init__(self, client: CloudMlClient, store: RunStore, say: Callable[[str], None]) -> None:
        self._client = client
        self._store = store
        self._say = say
        self._result = ImportResult()
        self._uids: dict[str, str] = {}
        self._runs: dict[str, StoredRun] = {}
        self._bucket = client.whoami().default_bucket
        self._models = ModelImport(client, self._uids, self._bucket)

    def run(self, experiment: str | None = None) -> ImportResult:
        """Import all experiments, or the one of a name.

        Raises:
            NotFound: There is no such experiment.
            InvalidRequest: The store cannot be read.
        """
        there = self._store.experiments()
        selected = [one for one in there if experiment in (None, one.name)]
        if not there:
            raise NotFound(
                "the store has no experiment", field="store",
                allowed="a folder mlruns or a database mlflow.db of MLflow, with experiments",
            )  # fmt: skip
        if not selected:
            raise NotFound(
                "the store has no such experiment", field="experiment", value=experiment,
                allowed=", ".join(one.name for one in there),
            )  # fmt: skip
        for each in selected:
            runs = self._store.runs(each)
            self._runs |= {run.uid: run for run in runs}
            target = self._experiment(each) if runs else None
            for run in runs:
                if target is not None and run.uid not in self._uids:
                    self._import(run, target, frozenset())
            if target is not None or self._has_models(each):
                self._import_models(each, target or self._experiment(each))
        for model in self._store.registered_models():
            self._models.bring_registered_model(model)
        result, models = self._result, self._models
        result.models, result.versions = models.models, models.versions
        result.files += models.files
        result.notes += models.notes
        result.failed += models.failed
        return result

    def _has_models(self, experiment: StoredExperiment) -> bool:
        return any(True for _ in self._store.logged_models(experiment))

    def _import_models(self, stored: StoredExperiment, target: RunExperiment) -> None:
        for model in self._store.logged_models(stored):
            self._models.bring_logged_model(model, target)

    def _experiment(self, stored: StoredExperiment) -> RunExperiment:
        """The experiment of that name on the server, made if it is not there."""
        if not (found := self._experiments(stored.name)):
            tags = dict(islice(stored.tags.items(), _PAIRS))
            # a try whose answer was lost has made it, too
            with contextlib.suppress(AlreadyCarriedOut, AlreadyExists):
                self._client.runs.create_experiment(stored.name, tags)
            found = self._experiments(stored.name)
        if not found:
            raise AlreadyExists(
                f"the server has a deleted experiment of the name {stored.name!r}",
                field="experiment", value=stored.name,
                hint="Restore it with MLflow's client, or rename the one of the store.",
            )  # fmt: skip
        return found[0]

    def _experiments(self, name: str) -> list[RunExperiment]:
        return [one for one in self._client.runs.experiments() if one.name == name]

    def _import(self, run: StoredRun, experiment: RunExperiment, above: frozenset[str]) -> None:
        """Import a run, behind the one that it is a part of."""
        try:
            tags = dict(self._store.tags(run))
            parent = tags.get(PARENT_TAG, "")
            if parent in self._runs and parent not in self._uids and parent not in above:
                self._import(self._runs[parent], experiment, above | {run.uid})
            if parent in self._uids:
                tags[PARENT_TAG] = self._uids[parent]
            self._bring(run, experiment, tags)
        except TransportError:
            raise
        except CloudMlError as error:
            self._result.failed.append(f"run {run.name or run.uid} ({run.uid}): {error.message}")

    def _bring(self, run: StoredRun, experiment: RunExperiment, tags: Mapping[str, str]) -> None:
        found = self._find(run)
        if found is not None and (found.uid == run.uid or DONE_TAG in found.tags):
            self._uids[run.uid] = found.uid
            self._result.unchanged += 1
            return
        kept = {key: value for key, value in tags.items() if not key.startswith(_OURS)}
        uid = found.uid if found else self._settle(run, self._make(run, experiment, kept))
        self._uids[run.uid] = uid
        for part in _parts(kept.items(), _PAIRS):
            self._client.runs.log(uid, tags=dict(part))
        for part in _parts(self._store.params(run).items(), _PAIRS):
            self._client.runs.log(uid, params=dict(part))
        for some in _parts(self._store.datasets(run), _PAIRS):
            self._client.runs.log_datasets(uid, [(one.texts, one.tags) for one in some])
        self._bring_values(run, uid)
        self._bring_artifacts(run, uid)
        if (own := self._settle(run, uid)) != uid:  # another import brings it
            self._uids[run.uid] = own
            return
        if run.state in ENDED:
            self._client.runs.finish(uid, run.state, run.end)
            self._client.runs.log(uid, tags={DONE_TAG: "true"})
        self._result.made += found is None
        self._result.continued += found is not None
        self._say(f"{run.name or run.uid} is run {uid}.")

    def _find(self, run: StoredRun) -> Run | None:
        """The run on the server that was imported from this one, or that is this one."""
        text = run.uid.replace("'", "")
        found = list(self._client.runs.search(None, f"tags.`{SOURCE_TAG}` = '{text}'", limit=1))
        if found:
            return found[0]
        try:
            return self._client.runs.describe(run.uid)
        except CloudMlError:
            return None

    def _make(self, run: StoredRun, experiment: RunExperiment, tags: Mapping[str, str]) -> str:
        first = {SOURCE_TAG: run.uid, **dict(islice(tags.items(), _PAIRS - 1))}
        try:
            return self._client.runs.create(
                run.name or run.uid, experiment, start=run.start, tags=first
            )
        except AlreadyCarriedOut:
            if (made := self._find(run)) is None:
                raise
            return made.uid

    def _settle(self, run: StoredRun, uid: str) -> str:
        """The one run that stands for this one, where another import at the same time has made one,
        too: one that is complete, else that with the smallest uid. If ``uid`` is another, remove it.
        """
        text = run.uid.replace("'", "")
        found = list(self._client.runs.search(None, f"tags.`{SOURCE_TAG}` = '{text}'", columns=()))
        if len(found) < 2:
            return uid
        kept = min(found, key=lambda one: (DONE_TAG not in one.tags, one.uid)).uid
        if kept != uid:
            with contextlib.suppress(NotFound, AlreadyCarriedOut):
                self._client.runs.delete(uid)
        return kept

    def _bring_values(self, run: StoredRun, uid: str) -> None:
        series = self._client.runs.series(uid)
        there = {one.name: one.count + one.earlier for one in series}
        for metric in self._store.metrics(run):
            values = _without_repeats(self._store.values(run, metric))
            for part in _parts(islice(values, there.get(metric, 0), None), _VALUES):
                self._client.runs.log(uid, metrics=part)

    def _bring_artifacts(self, run: StoredRun, uid: str) -> None:
        folder = self._store.artifacts(run)
        if folder is None:
            return
        if links := links_below(folder):
            self._result.notes.append(f"{links} links in {folder} are not followed")
        prefix = f"fds://{self._bucket}/mlflow/{uid}/artifacts/"
        there = {
            f"fds://{one.bucket}/{one.key}".removeprefix(prefix): one.size
            for one in self._client.storage.list_objects(prefix)
        }
        for name, path in files_below(folder):
            if there.get(name) != path.stat().st_size:
                self._send(path, prefix + name)

    def _send(self, path: Path, uri: str) -> None:
        self._client.storage.upload_file(path, uri)
        self._result.files += 1


def _parts(values: Iterable[T], most: int) -> Iterator[list[T]]:
    rest = iter(values)
    while part := list(islice(rest, most)):
        yield part


def _without_repeats(values: Iterable[LoggedValue]) -> Iterator[LoggedValue]:
    """The values, each once: the server leaves out what it was sent before, and is asked by their
    number where they go on.
    """
    seen: set[tuple[int, int, str]] = set()
    for value in values:
        this = (value.step, value.at, repr(value.value))
        if this not in seen:
            seen.add(this)
            yield value
