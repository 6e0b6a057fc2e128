"""Which chunks a chart of a range of steps needs, and what it shows of them."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from cloud_ml.domain.metrics.envelopes import PART_POINTS, select_places, unpack, unpack_columns
from cloud_ml.domain.metrics.points import Point, PointRow


class ChunkSummary(Protocol):
    """What is read of a chunk without a look at its points. A long series has thousands, so nothing
    is made of the points of an envelope until it is known which of them are shown.
    """

    @property
    def number(self) -> int:
        """Its number."""

    @property
    def n(self) -> int:
        """How many points it has."""

    @property
    def from_step(self) -> int:
        """The lowest step."""

    @property
    def to_step(self) -> int:
        """The highest step."""

    @property
    def packed(self) -> bytes:
        """The points that stand for it, as ``envelopes.pack`` gave them."""


def to_decode(lines: Sequence[ChunkSummary], low: int, high: int, most: int) -> set[int]:
    """The numbers of the chunks whose points are needed for ``most`` of the steps from ``low`` to
    ``high``. Of the others, their envelopes are as good.
    """
    parts = max(1, (most - 2) // 2)
    if sum(line.n for line in lines) >= parts * PART_POINTS:
        return {line.number for line in lines if line.from_step < low or line.to_step > high}
    return {line.number for line in lines}


def select_points(
    lines: Iterable[ChunkSummary],
    decoded: Collection[tuple[int, Sequence[Point]]],
    low: int,
    high: int,
    most: int,
) -> list[Point]:
    """At most ``most`` points of a range of steps, in their order."""
    whole = dict(decoded)
    found = _PointColumns()
    envelopes: list[bytes] = []  # of chunks in a row, which are unpacked together
    for line in lines:
        points = whole.get(line.number)
        inside = low <= line.from_step and line.to_step <= high
        if points is None and inside:
            envelopes.append(line.packed)
            continue
        found.add_envelopes(envelopes)
        envelopes = []
        rows: Iterable[PointRow] = unpack(line.packed) if points is None else points
        found.add_rows(rows if inside else [row for row in rows if low <= row[0] <= high])
    found.add_envelopes(envelopes)
    return found.select(most)


class _PointColumns:
    """Steps, times and values of points. A chart is chosen from tens of thousands of points, of
    which no objects are made.
    """

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._times = array("q")
        self._values: list[float] = []

    def add_rows(self, rows: Iterable[PointRow]) -> None:
        columns = list(zip(*rows, strict=True))
        if columns:
            self._add(*columns)

    def add_envelopes(self, packed: Iterable[bytes]) -> None:
        self._add(*unpack_columns(b"".join(packed)))

    def _add(self, steps: Iterable[int], times: Iterable[int], values: Iterable[float]) -> None:
        self._steps += steps
        self._times.extend(times)
        self._values += values

    def select(self, most: int) -> list[Point]:
        """At most so many, in the order of their steps."""
        if sorted(self._steps) != self._steps:
            self._sort()
        places = select_places(self._steps, self._values, most)
        steps, times, values = self._steps, self._times, self._values
        return list(
            map(
                Point,
                map(steps.__getitem__, places),
                map(times.__getitem__, places),
                map(values.__getitem__, places),
            )
        )

    def _sort(self) -> None:
        order = sorted(range(len(self._steps)), key=self._steps.__getitem__)
        self._steps = [self._steps[at] for at in order]
        self._times = array("q", map(self._times.__getitem__, order))
        self._values = [self._values[at] for at in order]
