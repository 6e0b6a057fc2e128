"""The contract of the store of metrics, which is a part of the state store.

``cloud_ml.testing.state.metrics.MetricContract`` is the same in code.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cloud_ml.domain.metrics.points import LARGEST_STEP, Point
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import REPORTS, MetricLimits, Series
from cloud_ml.domain.metrics.summary_tags import SummaryTag


@dataclass(frozen=True)
class FilePosition:
    """How far a file was read. ``identity`` tells the file from another of its name, ``state`` is
    what its reader needs to go on.
    """

    identity: str = ""
    offset: int = 0
    state: str = ""


NOT_READ = FilePosition()


@dataclass(frozen=True)
class ReportFile:
    """A file with points of one run: the reports or the log of a task in an attempt, or the event
    file with this ``path``, which was first seen in the attempt.
    """

    attempt: int
    task: str
    source: str = REPORTS
    path: str = ""


@dataclass(frozen=True)
class Appended:
    """Why values were refused, in sentences, and whether that is the first time for this file."""

    refused: Sequence[str] = ()
    first: bool = False


@dataclass(frozen=True)
class PointRange:
    """Which points are wanted: of these steps, at most so many.

    ``earlier`` asks for those that a later start of the task has replaced, and nothing else.
    """

    low: int = -LARGEST_STEP
    high: int = LARGEST_STEP
    most: int = 1000
    earlier: bool = False


@dataclass(frozen=True)
class RunWithPoints:
    """A run that keeps points. ``number`` grows with the time at which runs are made, ``kind`` is
    that of its record.
    """

    number: int
    uid: str
    kind: str


class MetricStore(abc.ABC):
    """Series of points. A run is the record of a job, named by its uid; they go with it.

    Each method is one short transaction, and raises what those of ``StateStore`` raise.
    """

    @abc.abstractmethod
    def positions(self, run: str) -> Mapping[ReportFile, FilePosition]:
        """How far each file was read."""

    @abc.abstractmethod
    def append(
        self,
        run: str,
        file: ReportFile,
        values: Sequence[Value],
        *,
        before: FilePosition,
        after: FilePosition,
        limits: MetricLimits,
        tags: Sequence[SummaryTag] = (),
    ) -> Appended:
        """Add the values that stand in a file between two positions, and note the second one. With
        them the ``tags`` of summaries that are no values.

        Raises:
            StaleRevision: The file was not read to ``before``: somebody else has read it.
            NotFound: There is no such run.
        """

    @abc.abstractmethod
    def runs_with_points(self, after: int, most: int) -> Sequence[RunWithPoints]:
        """At most so many runs that keep points, in the order of their numbers behind ``after``."""

    @abc.abstractmethod
    def remove_points(self, run: str, most: int) -> int:
        """Remove the points of at most ``most`` chunks of a run, earlier ones among them.

        Its series stay, with all that lists show, and say how many points were removed. Returns how
        many were now: 0 if there is none left.
        """

    @abc.abstractmethod
    def points_of_org(self, org: str) -> int:
        """How many points the runs of an organisation keep. A stored sum: nothing is counted."""

    @abc.abstractmethod
    def series(self, run: str) -> Sequence[Series]:
        """All series of a run, by task and name. Looks at no points."""

    @abc.abstractmethod
    def tags(self, run: str) -> Sequence[SummaryTag]:
        """The tags with summaries of a run, by name and kind."""

    @abc.abstractmethod
    def series_of(
        self, runs: Collection[str], names: Collection[str] | None = None
    ) -> Mapping[str, Sequence[Series]]:
        """The series of at most 1000 runs; with ``names``, only these. Looks at no points."""

    @abc.abstractmethod
    def points(self, series: int, point_range: PointRange) -> Sequence[Point]:
        """Points of a series in the order of their steps: all of the range if they are not more
        than ``point_range.most``, else those that ``domain.metrics.envelopes`` keeps.
        """

    @abc.abstractmethod
    def chunk_points(
        self, series: int, first: int, most: int
    ) -> Sequence[tuple[int, Sequence[Point]]]:
        """The points of at most ``most`` chunks from number ``first`` on, as they came. Chunks that
        a later start has replaced are left out.
        """
