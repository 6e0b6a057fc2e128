"""Chunks give back every point bit by bit, and are small."""

from __future__ import annotations

import contextlib
import math
import random
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.metrics import chunks, envelopes
from cloud_ml.domain.metrics.points import LARGEST_STEP, LARGEST_TIME, Point

STEPS = st.integers(-LARGEST_STEP, LARGEST_STEP)
VALUES = st.one_of(st.floats(), st.floats(width=32), st.sampled_from([math.nan, math.inf, -0.0]))
POINTS = st.builds(Point, STEPS, st.integers(0, LARGEST_TIME), VALUES)


def bits(points: list[Point]) -> list[tuple[int, int, bytes]]:
    return [(point.step, point.at, struct.pack("<d", point.value)) for point in points]


@given(st.lists(POINTS, min_size=1, max_size=60))
def test_points_come_back(points: list[Point]) -> None:
    assert bits(chunks.decode(chunks.encode(points))) == bits(points)


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_read(data: bytes) -> None:
    with contextlib.suppress(chunks.DamagedChunk):
        chunks.decode(data)


def test_a_chunk_that_was_cut_is_refused() -> None:
    whole = chunks.encode([Point(step, step, 0.5) for step in range(10)])
    for length in range(1, len(whole)):
        with pytest.raises(chunks.DamagedChunk):
            chunks.decode(whole[:length])


@pytest.mark.parametrize("count", [0, chunks.CHUNK_POINTS + 1])
def test_the_number_of_points_is_bound(count: int) -> None:
    with pytest.raises(ValueError, match=f"there are {count} points"):
        chunks.encode([Point(0, 0, 0.0)] * count)


def losses(count: int, *, single: bool) -> list[Point]:
    """A loss that falls, with noise, about every 250 ms."""
    source, at, points = random.Random(7), 1_700_000_000_000, []
    for step in range(count):
        at += 250 + source.randrange(-20, 20)
        value = 2.3 * math.exp(-step / 700) + 0.1 * source.random()
        points.append(Point(step * 10, at, array("f", [value])[0] if single else value))
    return points


@pytest.mark.parametrize(("single", "most"), [(True, 6.0), (False, 10.0)])
def test_bytes_of_a_point(*, single: bool, most: float) -> None:
    points = losses(chunks.CHUNK_POINTS, single=single)
    stored = len(chunks.encode(points)) + len(envelopes.pack(envelopes.envelope_of(points)))
    assert stored / len(points) <= most
