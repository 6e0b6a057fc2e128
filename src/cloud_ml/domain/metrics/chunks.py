"""How points lie in a database: up to 1,024 of a series in one value.

A chunk has differences of differences of steps and times, and each value combined with the one
before it by XOR, as in Facebook's Gorilla. The bytes of equal weight lie side by side, since those
of high weight hardly change, and zlib takes the rest.
"""

from __future__ import annotations

import operator
import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

from cloud_ml.domain.metrics.points import Point

CHUNK_POINTS = 1024
_DOUBLES, _SINGLES = 1, 2
_HEAD = struct.Struct("<BHBB")
"""The kind, the number of points, and the bytes of a difference of steps and of times."""
_LARGEST = 1 << 16
"""Bytes of a chunk that is no larger than it may be, before zlib."""
_LEVEL = 6


class DamagedChunk(ValueError):
    """The bytes are none that ``encode`` gave."""


def encode(points: Sequence[Point]) -> bytes:
    """The smallest form of at least one and at most 1,024 points.

    Raises:
        ValueError: There are none, or too many.
    """
    if not 0 < len(points) <= CHUNK_POINTS:
        raise ValueError(f"there are {len(points)} points; allowed are 1 to {CHUNK_POINTS}")
    steps, times, values = zip(*points, strict=True)
    step_bytes, step_planes = _pack_differences(steps)
    time_bytes, time_planes = _pack_differences(times)
    singles = array("f", values)
    kind, width, bits = _DOUBLES, 8, array("Q", array("d", values).tobytes())
    # Store single precision if no bit is lost. Compare bytes, because NaN is not equal to itself.
    if array("d", singles).tobytes() == array("d", values).tobytes():
        kind, width, bits = _SINGLES, 4, array("I", singles.tobytes())
    mixed = array(bits.typecode, [bits[0], *map(operator.xor, bits[1:], bits)])
    body = step_planes + time_planes + _planes(mixed.tobytes(), width)
    return _HEAD.pack(kind, len(points), step_bytes, time_bytes) + zlib.compress(body, _LEVEL)


def count(chunk: bytes) -> int:
    """How many points a chunk has.

    Raises:
        DamagedChunk: It is damaged.
    """
    try:
        return int(_HEAD.unpack_from(chunk)[1])
    except struct.error as error:
        raise DamagedChunk(str(error)) from error


def decode(chunk: bytes) -> list[Point]:
    """The points of a chunk.

    Raises:
        DamagedChunk: It is damaged.
    """
    try:
        kind, count, step_bytes, time_bytes = _HEAD.unpack_from(chunk)
        unpack = zlib.decompressobj()
        # Bound the size: a few damaged bytes could unpack to gigabytes.
        body = unpack.decompress(chunk[_HEAD.size :], _LARGEST)
    except (struct.error, zlib.error) as error:
        raise DamagedChunk(str(error)) from error
    width = {_DOUBLES: 8, _SINGLES: 4}.get(kind, 0)
    sizes = [count * each for each in (step_bytes, time_bytes, width)]
    if not width or not unpack.eof or sum(sizes) != len(body) or max(step_bytes, time_bytes) > 8:
        raise DamagedChunk("a chunk has other parts than its head says")
    steps = _unpack_differences(body[: sizes[0]], step_bytes, count)
    times = _unpack_differences(body[sizes[0] : -sizes[2]], time_bytes, count)
    raw = array("Q" if width == 8 else "I", _rows(body[-sizes[2] :], width))
    plain = array(raw.typecode, accumulate(raw, operator.xor)).tobytes()
    values = array("d" if width == 8 else "f", plain)
    return list(map(Point, steps, times, values))


def _pack_differences(numbers: Sequence[int]) -> tuple[int, bytes]:
    """Differences of differences as unsigned numbers: how many bytes each takes, and those."""
    first = [numbers[0], *map(operator.sub, numbers[1:], numbers)]
    second = [first[0], *map(operator.sub, first[1:], first)]
    # The sign moves to the lowest bit, so that small negative numbers are small.
    folded = array("Q", [(each << 1) ^ (each >> 63) for each in second])
    width = (max(folded).bit_length() + 7) // 8
    return width, _planes(folded.tobytes(), 8)[: width * len(numbers)]


def _unpack_differences(planes: bytes, width: int, count: int) -> Iterable[int]:
    full = planes + bytes((8 - width) * count)
    folded = array("Q", _rows(full, 8))
    second = [(each >> 1) ^ -(each & 1) for each in folded]
    return accumulate(accumulate(second))


def _planes(data: bytes, width: int) -> bytes:
    """The first byte of every number, then the second of every number, and so on."""
    return b"".join(data[at::width] for at in range(width))


def _rows(planes: bytes, width: int) -> bytes:
    """The way back from ``_planes``."""
    count = len(planes) // width
    rows = bytearray(len(planes))
    for at in range(width):
        rows[at::width] = planes[at * count : (at + 1) * count]
    return bytes(rows)
