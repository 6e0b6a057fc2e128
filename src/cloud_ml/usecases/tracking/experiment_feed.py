"""The changes of experiments, as one stream: they are rows with revisions, and not records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.domain.tracking.runs import Experiment
from cloud_ml.state.base import StateStore
from cloud_ml.state.tracking_rules import tag_characters
from cloud_ml.usecases.feed import ChangeFeed, FeedChange
from cloud_ml.usecases.offload import Offload

_PAGE = 8
"""Experiments that are read at once: one may have 256 KiB of tags."""
_SMALL = 1024


@dataclass(frozen=True, slots=True)
class ChangedExperiment(FeedChange):
    """An experiment changed. ``experiment`` is how it stands, at ``revision`` or later.

    ``uid`` is its id, which is unique in its organisation only.
    """

    experiment: Experiment


class ExperimentFeed(ChangeFeed[ChangedExperiment]):
    """The changes of all experiments. None is told when an organisation is removed with all that it
    has: nobody is left who may see it.
    """

    def __init__(self, store: StateStore, offload: Offload, *, poll_s: float = 1.0) -> None:
        super().__init__(store, "experiment", offload, poll_s=poll_s)

    def _look(
        self, after: int, scope: str | None = None, uid: str | None = None
    ) -> Sequence[ChangedExperiment]:
        changed = self._store.tracking.experiment_changes(after, org=scope, id_=uid, limit=_PAGE)
        return [change_of(one) for one in changed]


def change_of(experiment: Experiment) -> ChangedExperiment:
    """The newest change of an experiment."""
    size = _SMALL + tag_characters(experiment)
    return ChangedExperiment(
        experiment.revision, experiment.id, experiment.org, experiment, size=size
    )
