"""What a chart shows of many points: the lowest and the highest of each part of the range, and
always the first and the last point. Never a random choice: a peak of one point stays visible.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from typing import TypeVar

from cloud_ml.domain.metrics.chunks import CHUNK_POINTS
from cloud_ml.domain.metrics.points import Point, PointRow

Row = TypeVar("Row", bound=PointRow)
PART_POINTS = 128
"""The envelope of a chunk has the extremes of each part of so many points."""
LONGEST = 2 * (CHUNK_POINTS // PART_POINTS) + 2
_POINT = struct.Struct("<qqd")


def envelope_of(points: Sequence[Point]) -> list[Point]:
    """The points that stand for those of a chunk: its first and last one, and the extremes of
    each part. They are in the order of ``points``, and none is there twice.
    """
    kept, values = {0, len(points) - 1}, [point[2] for point in points]
    for begin in range(0, len(points), PART_POINTS):
        kept.update(_extremes(values, begin, min(begin + PART_POINTS, len(points))))
    return [points[at] for at in sorted(kept)]


def pack(points: Iterable[Point]) -> bytes:
    """An envelope as it is stored."""
    return b"".join(starmap(_POINT.pack, points))


def unpack(envelope: bytes) -> Iterator[Point]:
    """The points of an envelope that was stored."""
    return starmap(Point, _POINT.iter_unpack(envelope))


def unpack_columns(envelopes: bytes) -> tuple[list[int], array[int], list[float]]:
    """The steps, times and values of one envelope or of several in a row. A chart of a long series
    needs thousands of these points, of which few are shown: steps and values are looked at, times
    are not, so no objects are made of them.
    """
    whole, values = array("q", envelopes), array("d", envelopes)
    if sys.byteorder == "big":
        whole.byteswap()
        values.byteswap()
    return whole[0::3].tolist(), whole[1::3], values[2::3].tolist()


def reduce(points: Sequence[Row], most: int) -> list[Row]:
    """At most ``most`` of these points, which are in the order of their steps.

    The steps between the first and the last point are divided into equal parts. The lowest and
    the highest point of each is kept, and the first and the last of all.
    """
    if len(points) <= most:
        return list(points)
    steps, values = [point[0] for point in points], [point[2] for point in points]
    return [points[at] for at in select_places(steps, values, most)]


def select_places(steps: Sequence[int], values: Sequence[float], most: int) -> Sequence[int]:
    """Where those points are that ``reduce`` keeps."""
    if len(steps) <= most:
        return range(len(steps))
    parts = max(0, (most - 2) // 2)
    kept, begin = {0, len(steps) - 1}, 0
    first, width = steps[0], steps[-1] - steps[0] + 1
    numbers = not math.isnan(sum(values))  # all of them are some
    for part in range(parts):
        end = bisect_left(steps, first + width * (part + 1) // parts, begin)
        if numbers and end > begin:
            inside = values[begin:end]
            kept.add(begin + inside.index(min(inside)))
            kept.add(begin + inside.index(max(inside)))
        else:
            kept.update(_extremes(values, begin, end))
        begin = end
    return sorted(kept)


def _extremes(values: Sequence[float], begin: int, end: int) -> tuple[int, ...]:
    """Where the lowest and the highest value are; what is no number is neither, unless there is
    nothing else.
    """
    part = values[begin:end]
    if math.isnan(sum(part)):  # there is one, or both infinities
        numbers = [at for at in range(begin, end) if not math.isnan(values[at])]
        if not numbers:
            return (begin,)
        return min(numbers, key=values.__getitem__), max(numbers, key=values.__getitem__)
    if not part:
        return ()
    return begin + part.index(min(part)), begin + part.index(max(part))
