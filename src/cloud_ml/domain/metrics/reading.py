"""Which chunks a chart of a range of steps needs, and what it shows of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol

from cloud_ml.domain.metrics.envelopes import PART_POINTS, reduce, unpack_rows
from cloud_ml.domain.metrics.points import Point, PointRow


class ChunkSummary(Protocol):
    """What is read of a chunk without a look at its points."""

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
    def envelope(self) -> Sequence[PointRow]:
        """The points that stand for it."""


class StoredLine(NamedTuple):
    """The same, as a database has it. A long series has thousands, so nothing is made of the
    points of an envelope until it is known which of them are shown.
    """

    number: int
    n: int
    from_step: int
    to_step: int
    packed: bytes

    @property
    def envelope(self) -> Sequence[PointRow]:
        """The points that stand for it."""
        return unpack_rows(self.packed)


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
    found: list[PointRow] = []
    for line in lines:
        points: Sequence[PointRow] | None = whole.get(line.number)
        if points is None:
            points = line.envelope
        if low <= line.from_step and line.to_step <= high:
            found += points
        else:
            found += [point for point in points if low <= point[0] <= high]
    found.sort(key=itemgetter(0))
    return [Point(*point) for point in reduce(found, most)]
