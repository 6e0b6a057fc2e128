"""The contract of the store of runs and experiments, which is a part of the state store.

``cloud_ml.testing.state.tracking.TrackingContract`` is the same in code.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloud_ml.domain.metrics.series import MetricLimits
from cloud_ml.domain.tracking.filters import Comparison, OrderKey
from cloud_ml.domain.tracking.runs import (
    Experiment,
    LastValue,
    LogBatch,
    RunChange,
    RunRow,
    TrackingLimits,
    View,
)

if TYPE_CHECKING:
    from cloud_ml.state.base import Once


@dataclass(frozen=True)
class RunSearch:
    """Which runs are wanted, and in which order.

    ``experiments`` of ``None`` are all of the organisation. Without ``order``, the newest is first.
    ``after`` is the cursor of the page before: with an order, how many runs to skip.
    """

    org: str
    experiments: Sequence[str] | None = None
    conditions: Sequence[Comparison] = ()
    order: Sequence[OrderKey] = ()
    view: View = View.ACTIVE
    after: int | None = None
    limit: int = 50
    seconds: float = 10.0
    """The search may take so long."""


@dataclass(frozen=True)
class RunPage:
    """A page of runs, and the cursor of the next one."""

    items: Sequence[RunRow]
    next: int | None


class TrackingStore(abc.ABC):
    """Runs, their parameters and tags, and experiments. A run is named by the uid of its record.

    Each method is one short transaction, and raises what those of ``StateStore`` raise.
    """

    @abc.abstractmethod
    def add_experiment(self, experiment: Experiment, *, most: int, once: Once | None) -> Experiment:
        """Store a new experiment, which gets a revision.

        Raises:
            AlreadyExists: One has the name or the id.
            QuotaExceeded: The organisation has ``most`` of them.
            Unauthenticated: ``once`` was seen before.
        """

    @abc.abstractmethod
    def change_experiment(
        self,
        org: str,
        id_: str,
        change: Callable[[Experiment], Experiment],
        *,
        once: Once | None,
    ) -> Experiment:
        """Change an experiment that is there. The default one is, also where it is not stored.

        Where its name, tags or deletion become others, it gets a new revision in the same
        transaction, and followers are woken. The revision comes from the store, not from
        ``change``.

        ``change`` is called within the transaction, so no change of another request is lost. What
        it raises leaves the experiment as it is.

        Raises:
            NotFound: There is none of its id.
            AlreadyExists: Another one has the name.
            Unauthenticated: ``once`` was seen before.
        """

    @abc.abstractmethod
    def experiments(self, org: str) -> Sequence[Experiment]:
        """All experiments of an organisation, newest first."""

    @abc.abstractmethod
    def experiment(self, org: str, id_: str) -> Experiment | None:
        """The experiment of that id."""

    @abc.abstractmethod
    def find_experiment(self, org: str, name: str) -> Experiment | None:
        """The experiment of that name."""

    @abc.abstractmethod
    def experiment_changes(
        self, after: int, *, org: str | None = None, id_: str | None = None, limit: int
    ) -> Sequence[Experiment]:
        """At most ``limit`` experiments whose revision is behind ``after``, the oldest change
        first: of all organisations or of one, and of the latter all or one.
        """

    @abc.abstractmethod
    def forget_experiments(self, org: str) -> None:
        """Remove all experiments of an organisation, which is being removed."""

    @abc.abstractmethod
    def run(self, uid: str) -> RunRow | None:
        """A run."""

    @abc.abstractmethod
    def change_run(self, uid: str, change: RunChange, *, once: Once | None = None) -> RunRow:
        """Change the row of a run.

        Where name, state, end or deletion of a run without a job become others, its record gets a
        new revision in the same transaction, and so the feed of changes tells it. ``log`` does the
        same for a new name. Nothing else that is logged does, and the record of a job stays as it
        is.

        Raises:
            NotFound: There is no such run.
            Unauthenticated: ``once`` was seen before.
        """

    @abc.abstractmethod
    def begin_job_run(
        self,
        uid: str,
        attempt: int,
        experiment: str | None,
        tags: Mapping[str, str],
        *,
        limits: TrackingLimits,
        once: Once | None = None,
    ) -> bool:
        """Have an attempt of a job begin the run of the job; false if it has done so before.

        The run goes to the experiment, if there is one, and gets the tags. The attempt is noted in
        ``ATTEMPT_TAG`` in the same transaction.

        Raises:
            NotFound: There is no such run.
            InvalidRequest: The run has too many tags.
            Unauthenticated: ``once`` was seen before.
        """

    @abc.abstractmethod
    def log(
        self,
        uid: str,
        batch: LogBatch,
        *,
        limits: TrackingLimits,
        metric_limits: MetricLimits,
        once: Once | None = None,
    ) -> None:
        """Add values, parameters and tags: all of them, or nothing.

        A value that equals one of the newest points of its series was sent before, and is left out.

        Raises:
            NotFound: There is no such run.
            InvalidRequest: A parameter has another value already, or the run has too many of
                something.
            Unauthenticated: ``once`` was seen before.
        """

    @abc.abstractmethod
    def params(self, uids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The parameters of at most 1000 runs, by uid and key."""

    @abc.abstractmethod
    def tags(self, uids: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The tags of at most 1000 runs, by uid and key."""

    @abc.abstractmethod
    def inputs(self, uids: Collection[str]) -> Mapping[str, str]:
        """The data sets of at most 1000 runs, by uid."""

    @abc.abstractmethod
    def last_values(
        self, uids: Collection[str], names: Collection[str] | None = None
    ) -> Mapping[str, Sequence[LastValue]]:
        """The newest value of each metric of at most 1000 runs. Looks at no points.

        Of several sources and tasks, it is the value that counts: see ``precedence``. The metrics
        of a run are in the order of their names.
        """

    @abc.abstractmethod
    def search(self, run_search: RunSearch) -> RunPage:
        """A page of runs, without their data sets: they may be long.

        Raises:
            InvalidRequest: It takes too long to find them.
        """
