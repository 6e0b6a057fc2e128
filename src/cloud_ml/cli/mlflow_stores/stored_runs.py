"""What a store of MLflow holds."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.cli.mlflow_stores.stored_models import StoredLoggedModel, StoredRegisteredModel
from cloud_ml.models.tracking.metrics import LoggedValue

STATES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
"""The state of a run, by its number in folders: they begin at 1."""
ENDED = ("FINISHED", "FAILED", "KILLED")
PARENT_TAG, USER_TAG = "mlflow.parentRunId", "mlflow.user"


@dataclass(frozen=True)
class StoredExperiment:
    """An experiment. ``id`` is the store's."""

    id: str
    name: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class StoredRun:
    """A run, without what was logged to it. Times are milliseconds since 1970."""

    uid: str
    experiment: str
    name: str
    state: str
    start: int
    end: int | None


@dataclass(frozen=True)
class StoredDataset:
    """A data set that a run has read: name, digest, source and more texts, as MLflow calls them, and
    tags, such as what it was read for.
    """

    texts: Mapping[str, str]
    tags: Mapping[str, str]


DATASET_KEYS = ("name", "digest", "source_type", "source", "schema", "profile")
"""Of the texts of a data set."""


class RunStore(abc.ABC):
    """Reads a store. What was deleted is left out.

    Every method raises ``InvalidRequest`` for what cannot be read.
    """

    @abc.abstractmethod
    def experiments(self) -> Sequence[StoredExperiment]:
        """All experiments."""

    @abc.abstractmethod
    def runs(self, experiment: StoredExperiment) -> Sequence[StoredRun]:
        """The runs of an experiment, the oldest first."""

    @abc.abstractmethod
    def params(self, run: StoredRun) -> Mapping[str, str]:
        """The parameters of a run."""

    @abc.abstractmethod
    def tags(self, run: StoredRun) -> Mapping[str, str]:
        """The tags of a run."""

    @abc.abstractmethod
    def metrics(self, run: StoredRun) -> Sequence[str]:
        """The names of the metrics of a run."""

    @abc.abstractmethod
    def values(self, run: StoredRun, metric: str) -> Iterator[LoggedValue]:
        """The values of a metric, in an order that is always the same."""

    @abc.abstractmethod
    def datasets(self, run: StoredRun) -> Sequence[StoredDataset]:
        """The data sets that a run has read. Stores of before MLflow 2.4 have none."""

    @abc.abstractmethod
    def artifacts(self, run: StoredRun) -> Path | None:
        """The folder with the artifacts of a run, if it is below that of the store."""

    @abc.abstractmethod
    def logged_models(self, experiment: StoredExperiment) -> Iterator[StoredLoggedModel]:
        """The logged models of an experiment. Stores of before MLflow 3 have none."""

    @abc.abstractmethod
    def registered_models(self) -> Iterator[StoredRegisteredModel]:
        """All registered models."""
