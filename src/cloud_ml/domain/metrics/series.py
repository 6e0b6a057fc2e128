"""How series grow. A store keeps the rows that are read and written here.

The points of a series come from starts of a task, which follow each other: those of attempt 1, those
of its restarts, those of attempt 2. A start that begins at a step which an earlier one has reached
replaces what that one has reported from there on. The replaced points stay, as *earlier* ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from typing import NamedTuple, Protocol

from cloud_ml.domain.metrics import chunks
from cloud_ml.domain.metrics.chunks import CHUNK_POINTS
from cloud_ml.domain.metrics.envelopes import envelope_of, pack
from cloud_ml.domain.metrics.points import LARGEST_STEP, Point
from cloud_ml.domain.metrics.reports import Value

REPORTS, EVENT_FILES, LOG = "report", "event_file", "log"
"""Where points come from. Each source has series of its own, so a metric that a program writes to
two of them is not there twice in one.
"""
SOURCES = (REPORTS, EVENT_FILES, LOG)
_TRUST = {EVENT_FILES: 0, LOG: 1, REPORTS: 2}
_LOOKED_BACK = 128
"""So many of the newest points are looked at for values that are sent again, and more for a larger
batch: others may have added points meanwhile.
"""

TAIL_POINTS = 16
"""So many of the newest points of a chunk are not packed with the others, but stand at the end of its
envelope: to pack a chunk again for each value takes longer than all else that a value costs.
"""


class TaskStart(NamedTuple):
    """A start of a task: its attempt, and the restart within that."""

    attempt: int
    restart: int = 0


@dataclass(frozen=True)
class Series:
    """The row of a series: what lists show, without a look at points.

    All but ``earlier`` is about the points that no later start has replaced. ``min`` and ``max``
    are ``None`` without a number, and ``nan`` counts the points that are none.
    """

    number: int
    task: str
    name: str
    start: TaskStart
    count: int = 0
    first: float = 0.0
    last: float = 0.0
    min: float | None = None
    max: float | None = None
    last_step: int = 0
    last_at: int = 0
    nan: int = 0
    earlier: int = 0
    chunks: int = 0
    """The number of the next one."""
    source: str = REPORTS
    removed: int = 0
    """Points that are not kept any more, earlier ones among them. They still count in the others."""


def precedence(
    source: str, last_at: int, last_step: int, *, log_last: bool = False
) -> tuple[int, int, int]:
    """Which of several series of one metric counts: the largest.

    A value that was reported counts before a line of the log, and that before an event file, however
    old it is: when a file or log is read is a matter of luck. Of one source, the newest counts.
    ``log_last`` ranks lines of the log behind event files: nobody asked to read them.
    """
    trust = -1 if log_last and source == LOG else _TRUST.get(source, 0)
    return trust, last_at, last_step


@dataclass(frozen=True)
class ChunkLine:
    """What a store knows of a chunk without a look at its points."""

    number: int
    start: TaskStart
    earlier: bool
    n: int
    nan: int
    from_step: int
    to_step: int
    envelope: tuple[Point, ...] = ()

    @property
    def packed(self) -> bytes:
        """The envelope as it is stored."""
        return pack(self.envelope)


@dataclass(frozen=True)
class Chunk:
    """A chunk as it is stored. Its newest points may stand in its envelope only."""

    line: ChunkLine
    points: bytes = field(repr=False)


def points_of(chunk: Chunk) -> list[Point]:
    """All points of a chunk."""
    return with_tail(chunks.decode(chunk.points), chunk.line.n, chunk.line.envelope)


def with_tail(packed: list[Point], n: int, envelope: Sequence[Point]) -> list[Point]:
    """The points of a chunk that has ``n``: those that were packed, and the others."""
    tail = n - len(packed)
    return [*packed, *envelope[-tail:]] if tail > 0 else packed


class SeriesRows(Protocol):
    """The rows of the series of one run, within a transaction."""

    def find(self, task: str, name: str, source: str) -> Series | None:
        """The row of a series."""

    def add(self, series: Series) -> Series:
        """A new row, with a number of its own in place of that of ``series``."""

    def update(self, series: Series) -> None:
        """Write a row that is there."""

    def size(self) -> tuple[int, int]:
        """How many series and points the run has, with earlier points."""

    def points_of_org(self) -> int:
        """How many points all runs of the organisation keep, with earlier points."""

    def count_points(self, more: int) -> None:
        """Add so many to ``points_of_org``."""

    def chunk(self, series: int, number: int) -> Chunk | None:
        """A chunk."""

    def put(self, series: int, chunk: Chunk) -> None:
        """Write a chunk, in the place of the one of its number if there is one."""

    def reaching(self, series: int, step: int) -> Sequence[int]:
        """The numbers of the chunks with a step of at least ``step`` that are not earlier ones."""

    def lines(self, series: int) -> Sequence[ChunkLine]:
        """All chunks that are not earlier ones, without their points."""


@dataclass(frozen=True)
class MetricLimits:
    """What one run may have. ``org_points`` is for all runs of its organisation together; ``None``
    stands for no limit.
    """

    series: int = 1000
    points: int = 10_000_000
    org_points: int | None = None


def append(
    rows: SeriesRows,
    task: str,
    attempt: int,
    values: Iterable[Value],
    limits: MetricLimits,
    *,
    source: str = REPORTS,
) -> list[str]:
    """Add values that a task has reported. Returns why some were refused, in sentences."""
    refused: dict[str, None] = {}
    groups: dict[tuple[int, str], list[Value]] = {}
    for value in values:
        groups.setdefault((value.restart, value.name), []).append(value)
    count, points = rows.size()
    room, limit = _find_room(rows, points, limits)
    added = 0
    for (restart, name), group in groups.items():
        start = TaskStart(attempt, restart)
        series = rows.find(task, name, source)
        if series is None and count >= limits.series:
            sentence = f"series {name!r} is not kept: a job has at most {limits.series} series"
            refused[sentence] = None
            continue
        kept = group[: max(0, room - added)]
        if len(kept) < len(group):
            refused[f"points of {name!r} are not kept: {limit}"] = None
        if not kept:
            continue
        if series is None:
            count += 1
            series = rows.add(Series(0, task, name, start, source=source))
        added += len(kept)
        rows.update(_grown(rows, series, start, kept))
    if added:
        rows.count_points(added)
    return list(refused)


def _find_room(rows: SeriesRows, points: int, limits: MetricLimits) -> tuple[int, str]:
    """How many points may be added to a run that has ``points``, and why not more."""
    room, why = limits.points - points, f"a job has at most {limits.points} points"
    if limits.org_points is None:
        return room, why
    left = limits.org_points - rows.points_of_org()
    if left >= room:
        return room, why
    return left, f"the organisation keeps at most {limits.org_points} points (its quota of points)"


def without_repeats(rows: SeriesRows, task: str, values: Sequence[Value]) -> list[Value]:
    """The values that are not among the newest points of their series: clients send again what
    they had no answer for.
    """
    groups: dict[str, list[Value]] = {}
    for value in values:
        groups.setdefault(value.name, []).append(value)
    newest = {name: list(_newest(rows, task, name, group)) for name, group in groups.items()}
    if not any(newest.values()) and all(map(_has_other_steps, groups.values())):
        return list(values)
    # Compare values as text, because NaN is not equal to itself.
    seen: dict[str, set[tuple[int | None, int, str]]] = {
        name: {(one.step, one.at, repr(one.value)) for one in points}
        for name, points in newest.items()
    }
    found = []
    for value in values:
        this = (value.step, value.at, repr(value.value))
        if this not in seen[value.name]:
            seen[value.name].add(this)
            found.append(value)
    return found


def _has_other_steps(values: Sequence[Value]) -> bool:
    """Whether each value has a step that no other one has: then none is there twice."""
    return len({value.step for value in values}) == len(values)


def _newest(rows: SeriesRows, task: str, name: str, values: Collection[Value]) -> Iterator[Point]:
    """The points of the newest chunks that may be among these values. As many points are looked back
    as there are values, and at least so many as clients send together.

    A chunk without a step of theirs is not unpacked, which is most of what a batch of new points costs.
    """
    steps = [value.step for value in values if value.step is not None]
    low, high = (min(steps), max(steps)) if steps else (0, -1)
    left = max(len(values), _LOOKED_BACK)
    series = rows.find(task, name, REPORTS)
    number = 0 if series is None else series.chunks
    while series is not None and number > 0 and left > 0:
        number -= 1
        chunk = rows.chunk(series.number, number)
        if chunk is None:
            continue
        left -= chunk.line.n
        if chunk.line.from_step <= high and low <= chunk.line.to_step:
            yield from points_of(chunk)


def _grown(rows: SeriesRows, series: Series, start: TaskStart, values: Sequence[Value]) -> Series:
    points = _with_steps(values, series.last_step + 1 if series.count else 0)
    if start < series.start:  # late words of a start that another one has followed
        return _add(rows, series, start, points, earlier=True)
    if start > series.start:
        purged = values[0].purge
        step = points[0].step if purged is None else min(purged, points[0].step)
        series = replace(_replace_from(rows, series, step), start=start)
    series = _add(rows, series, start, points, earlier=False)
    return _with_points(series, points)


def _with_steps(values: Sequence[Value], step: int) -> list[Point]:
    """Values without a step follow each other from ``step`` on."""
    _, steps, times, numbers, *_ = zip(*values, strict=True)
    if None not in steps and max(steps) <= LARGEST_STEP:
        return list(map(Point, steps, times, numbers))
    points = []
    for value in values:
        if value.step is not None:
            step = value.step
        points.append(Point(min(step, LARGEST_STEP), value.at, value.value))
        step += 1
    return points


def _with_points(series: Series, points: Sequence[Point]) -> Series:
    """The row after points were added at its end."""
    numbers = [point.value for point in points if not isnan(point.value)]
    known = [each for each in (series.min, series.max) if each is not None]
    return replace(
        series,
        count=series.count + len(points),
        first=series.first if series.count else points[0].value,
        last=points[-1].value,
        min=min(numbers + known, default=None),
        max=max(numbers + known, default=None),
        last_step=points[-1].step,
        last_at=points[-1].at,
        nan=series.nan + len(points) - len(numbers),
    )


def _add(
    rows: SeriesRows, series: Series, start: TaskStart, points: Sequence[Point], *, earlier: bool
) -> Series:
    """Write points behind those that are there: into the last chunk, and into new ones."""
    number, held = series.chunks, list[Point]()
    last = rows.chunk(series.number, number - 1) if number else None
    if last is not None and _goes_on(last.line, start, earlier=earlier):
        number -= 1
        if (grown := _extend(last, points)) is not None:
            rows.put(series.number, grown)
            return _with_chunks(series, number + 1, points, earlier=earlier)
        held = points_of(last)
    together = [*held, *points]
    for begin in range(0, len(together), CHUNK_POINTS):
        part = together[begin : begin + CHUNK_POINTS]
        rows.put(series.number, _chunk(number, start, part, earlier=earlier))
        number += 1
    return _with_chunks(series, number, points, earlier=earlier)


def _with_chunks(series: Series, number: int, points: Sequence[Point], *, earlier: bool) -> Series:
    hidden = len(points) if earlier else 0
    return replace(series, chunks=number, earlier=series.earlier + hidden)


def _extend(chunk: Chunk, points: Sequence[Point]) -> Chunk | None:
    """The chunk with these points at the end of its envelope; ``None`` if it is to be packed again.

    A chunk that is full is packed as a whole.
    """
    line = chunk.line
    n = line.n + len(points)
    if n >= CHUNK_POINTS or n - chunks.count(chunk.points) > TAIL_POINTS:
        return None
    steps = [point.step for point in points]
    grown = replace(
        line,
        n=n,
        nan=line.nan + sum(isnan(point.value) for point in points),
        from_step=min(line.from_step, *steps),
        to_step=max(line.to_step, *steps),
        envelope=(*line.envelope, *points),
    )
    return replace(chunk, line=grown)


def _goes_on(last: ChunkLine, start: TaskStart, *, earlier: bool) -> bool:
    return last.start == start and last.earlier == earlier and last.n < CHUNK_POINTS


def _chunk(number: int, start: TaskStart, points: Sequence[Point], *, earlier: bool) -> Chunk:
    steps = [point.step for point in points]
    nan = sum(isnan(point.value) for point in points)
    envelope = tuple(envelope_of(points))
    line = ChunkLine(number, start, earlier, len(points), nan, min(steps), max(steps), envelope)
    return Chunk(line, chunks.encode(points))


def _replace_from(rows: SeriesRows, series: Series, step: int) -> Series:
    """Make earlier points of all from ``step`` on."""
    number = series.chunks
    reaching = rows.reaching(series.number, step)
    if not reaching:
        return series
    for each in reaching:
        chunk = rows.chunk(series.number, each)
        if chunk is None:
            continue
        points = points_of(chunk)
        kept = [point for point in points if point.step < step]
        if not kept:
            line = replace(chunk.line, earlier=True)
            rows.put(series.number, replace(chunk, line=line))
            continue
        gone = [point for point in points if point.step >= step]
        start = chunk.line.start
        rows.put(series.number, _chunk(each, start, kept, earlier=False))
        rows.put(series.number, _chunk(number, start, gone, earlier=True))
        number += 1
    return _summarise_lines(replace(series, chunks=number), rows.lines(series.number))


def _summarise_lines(series: Series, lines: Sequence[ChunkLine]) -> Series:
    """The row of a series of which some points were replaced. Extremes are in the envelopes."""
    count = sum(line.n for line in lines)
    empty = replace(series, count=0, min=None, max=None, nan=0)
    empty = replace(empty, earlier=series.earlier + series.count - count)
    if not count:
        return empty
    ordered = sorted(lines, key=lambda line: line.number)
    shown = [point for line in ordered for point in line.envelope]
    return replace(_with_points(empty, shown), count=count, nan=sum(line.nan for line in lines))
