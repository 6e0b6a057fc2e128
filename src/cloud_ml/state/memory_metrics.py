"""Metrics in memory, beside ``state.memory``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from cloud_ml.domain.metrics import series
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.metrics.reading import select_points, to_decode
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import Chunk, ChunkLine, MetricLimits, Series, points_of
from cloud_ml.domain.metrics.summary_tags import SummaryTag, add_tags
from cloud_ml.errors import InvalidRequest
from cloud_ml.state import rules
from cloud_ml.state.metrics import (
    NOT_READ,
    Appended,
    FilePosition,
    MetricStore,
    PointRange,
    ReportFile,
    RunWithPoints,
)

Transaction = Callable[[], AbstractContextManager[None]]


@dataclass
class _Run:
    """The rows of one run; those of a transaction are a copy."""

    next_number: Callable[[], int]
    org_points: int = 0
    """Points that all runs of the organisation keep."""
    series: dict[tuple[str, str, str], Series] = field(default_factory=dict)
    chunks: dict[tuple[int, int], Chunk] = field(default_factory=dict)
    positions: dict[ReportFile, FilePosition] = field(default_factory=dict)
    refused: set[ReportFile] = field(default_factory=set)
    tags: dict[tuple[str, str], SummaryTag] = field(default_factory=dict)

    def copy(self, org_points: int) -> _Run:
        return replace(
            self,
            org_points=org_points,
            series=dict(self.series),
            chunks=dict(self.chunks),
            positions=dict(self.positions),
            refused=set(self.refused),
            tags=dict(self.tags),
        )

    def find(self, task: str, name: str, source: str) -> Series | None:
        return self.series.get((task, name, source))

    def add(self, series: Series) -> Series:
        made = replace(series, number=self.next_number())
        self.update(made)
        return made

    def update(self, series: Series) -> None:
        self.series[series.task, series.name, series.source] = series

    def size(self) -> tuple[int, int]:
        kept = (each.count + each.earlier - each.removed for each in self.series.values())
        return len(self.series), sum(kept)

    def points_of_org(self) -> int:
        return self.org_points

    def count_points(self, more: int) -> None:
        self.org_points += more

    def chunk(self, series: int, number: int) -> Chunk | None:
        return self.chunks.get((series, number))

    def put(self, series: int, chunk: Chunk) -> None:
        self.chunks[series, chunk.line.number] = chunk

    def reaching(self, series: int, step: int) -> Sequence[int]:
        return [line.number for line in self.lines(series) if line.to_step >= step]

    def lines(self, series: int) -> Sequence[ChunkLine]:
        found = [chunk.line for (number, _), chunk in self.chunks.items() if number == series]
        return sorted((line for line in found if not line.earlier), key=lambda line: line.number)

    def tags_of(self, name: str) -> Sequence[SummaryTag]:
        return [tag for _, tag in sorted(self.tags.items()) if tag.name == name]

    def count_tags(self) -> int:
        return len(self.tags)

    def put_tag(self, tag: SummaryTag) -> None:
        self.tags[tag.name, tag.kind] = tag


class MemoryMetricStore(MetricStore):
    """See ``MetricStore``.

    Args:
        reading: Holds the lock of the store of records.
        writing: The same for a write.
        org_of: The organisation of the record with that uid; ``None`` if there is none.
        describe: Number and kind of a record.
    """

    def __init__(
        self,
        reading: Transaction,
        writing: Transaction,
        org_of: Callable[[str], str | None],
        describe: Callable[[str], RunWithPoints],
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._org_of = org_of
        self._describe = describe
        self._runs: dict[str, _Run] = {}
        self._org_points: dict[str, int] = {}
        self._number = 0

    def positions(self, run: str) -> Mapping[ReportFile, FilePosition]:
        """See ``MetricStore.positions``."""
        with self._reading():
            return dict(self._run(run).positions)

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
        """See ``MetricStore.append``."""
        with self._writing():
            if (org := self._org_of(run)) is None:
                raise rules.no_run(run)
            rows = self._run(run).copy(self.points_of_org(org))
            if rows.positions.get(file, NOT_READ) != before:
                raise rules.read_already(run, file.task)
            refused = series.append(
                rows, file.task, file.attempt, values, limits, source=file.source
            ) + add_tags(rows, tags, limits.series)
            first = bool(refused) and file not in rows.refused
            rows.positions[file] = after
            if refused:
                rows.refused.add(file)
            self._runs[run] = rows
            self._org_points[org] = rows.org_points
            return Appended(refused, first)

    def log(self, run: str, task: str, values: Sequence[Value], limits: MetricLimits) -> None:
        """Add values that came without a file, within a transaction.

        Raises:
            InvalidRequest: The run has too many.
        """
        if (org := self._org_of(run)) is None:
            raise rules.no_run(run)
        rows = self._run(run).copy(self.points_of_org(org))
        new = series.without_repeats(rows, task, values)
        if refused := series.append(rows, task, 1, new, limits):
            raise InvalidRequest("; ".join(refused[:5]), field="metrics")
        self._runs[run] = rows
        self._org_points[org] = rows.org_points

    def runs_with_points(self, after: int, most: int) -> Sequence[RunWithPoints]:
        """See ``MetricStore.runs_with_points``."""
        with self._reading():
            found = [self._describe(uid) for uid, rows in self._runs.items() if rows.chunks]
        found = sorted((run for run in found if run.number > after), key=lambda run: run.number)
        return found[:most]

    def remove_points(self, run: str, most: int) -> int:
        """See ``MetricStore.remove_points``."""
        with self._writing():
            if (org := self._org_of(run)) is None:
                return 0
            rows = self._run(run).copy(self.points_of_org(org))
            removed = 0
            for key in list(rows.chunks)[:most]:
                n = rows.chunks.pop(key).line.n
                removed += n
                for series in list(rows.series.values()):
                    if series.number == key[0]:
                        rows.update(replace(series, removed=series.removed + n))
            rows.count_points(-removed)
            self._runs[run] = rows
            self._org_points[org] = rows.org_points
            return removed

    def points_of_org(self, org: str) -> int:
        """See ``MetricStore.points_of_org``."""
        return self._org_points.get(org, 0)

    def series(self, run: str) -> Sequence[Series]:
        """See ``MetricStore.series``."""
        with self._reading():
            found = self._run(run).series.values()
            return sorted(found, key=lambda each: (each.task, each.name, each.source))

    def tags(self, run: str) -> Sequence[SummaryTag]:
        """See ``MetricStore.tags``."""
        with self._reading():
            return [tag for _, tag in sorted(self._run(run).tags.items())]

    def series_of(
        self, runs: Collection[str], names: Collection[str] | None = None
    ) -> Mapping[str, Sequence[Series]]:
        """See ``MetricStore.series_of``."""
        found = {run: self.series(run) for run in runs}
        return {
            run: [each for each in lines if names is None or each.name in names]
            for run, lines in found.items()
        }

    def points(self, series: int, point_range: PointRange) -> Sequence[Point]:
        """See ``MetricStore.points``."""
        low, high, most = point_range.low, point_range.high, point_range.most
        with self._reading():
            found = [
                chunk
                for run, rows in self._runs.items()
                if self._org_of(run) is not None
                for (number, _), chunk in sorted(rows.chunks.items())
                if number == series
            ]
        found = [
            chunk
            for chunk in found
            if chunk.line.earlier == point_range.earlier
            and chunk.line.to_step >= low
            and chunk.line.from_step <= high
        ]
        lines = [chunk.line for chunk in found]
        needed = to_decode(lines, low, high, most)
        whole = [
            (chunk.line.number, points_of(chunk)) for chunk in found if chunk.line.number in needed
        ]
        return select_points(lines, whole, low, high, most)

    def chunk_points(
        self, series: int, first: int, most: int
    ) -> Sequence[tuple[int, Sequence[Point]]]:
        """See ``MetricStore.chunk_points``."""
        with self._reading():
            found = [
                (chunk.line.number, points_of(chunk))
                for rows in self._runs.values()
                for (number, _), chunk in sorted(rows.chunks.items())
                if number == series and chunk.line.number >= first and not chunk.line.earlier
            ]
        return found[:most]

    def forget(self, run: str, org: str) -> None:
        """The record is gone."""
        if (rows := self._runs.pop(run, None)) is not None:
            self._org_points[org] -= rows.size()[1]

    def _run(self, run: str) -> _Run:
        return self._runs.get(run) or _Run(self._next_number)

    def _next_number(self) -> int:
        self._number += 1
        return self._number
