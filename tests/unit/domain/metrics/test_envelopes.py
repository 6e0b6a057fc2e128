"""What charts show of many points."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.metrics import envelopes
from cloud_ml.domain.metrics.envelopes import envelope_of, reduce
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.metrics.reading import select_points
from cloud_ml.domain.metrics.series import ChunkLine, TaskStart

VALUES = st.one_of(st.floats(), st.integers(-5, 5).map(float))
POINTS = st.lists(st.tuples(st.integers(0, 5000), VALUES), min_size=1, max_size=400).map(
    lambda pairs: [Point(step, 0, value) for step, value in sorted(pairs, key=lambda pair: pair[0])]
)


def extremes(points: list[Point]) -> tuple[float, float] | None:
    numbers = [point.value for point in points if not point.is_nan]
    return (min(numbers), max(numbers)) if numbers else None


@given(POINTS, st.integers(4, 100))
def test_first_last_and_extremes_stay(points: list[Point], most: int) -> None:
    found = reduce(points, most)
    assert len(found) <= max(most, 2)
    assert found[0] is points[0]
    assert found[-1] is points[-1]
    assert extremes(found) == extremes(points)
    assert [point.step for point in found] == sorted(point.step for point in found)


@given(POINTS)
def test_few_points_stay_as_they_are(points: list[Point]) -> None:
    assert reduce(points, len(points)) == points


@given(POINTS)
def test_an_envelope_has_the_extremes(points: list[Point]) -> None:
    found = envelope_of(points)
    assert extremes(found) == extremes(points)
    assert found[0] is points[0]
    assert found[-1] is points[-1]
    assert str(list(envelopes.unpack(envelopes.pack(found)))) == str(found)


def test_a_peak_of_one_point_is_shown() -> None:
    points = [Point(step, 0, 0.0) for step in range(100_000)]
    points[54_321] = Point(54_321, 0, 9.0)
    assert points[54_321] in reduce(points, 100)


def test_what_is_no_number_is_shown_where_there_is_nothing_else() -> None:
    points = [Point(step, 0, math.nan) for step in range(1000)]
    assert all(point.is_nan for point in reduce(points, 10))


CHUNKS = st.lists(POINTS, min_size=1, max_size=4)


@given(
    CHUNKS,
    st.integers(-1, 400),
    st.integers(0, 400),
    st.integers(2, 60),
    st.sets(st.integers(0, 3)),
)
def test_columns_of_points_are_chosen_as_points_are(
    chunks: list[list[Point]], low: int, length: int, most: int, decoded: set[int]
) -> None:
    """Also where steps of one chunk lie within another, as attempts and other tasks have it."""
    high = low + length
    lines = [
        ChunkLine(
            number, TaskStart(1), False, len(points), 0, points[0].step, points[-1].step,
            tuple(envelope_of(points)),
        )
        for number, points in enumerate(chunks)
    ]  # fmt: skip
    whole = [(number, points) for number, points in enumerate(chunks) if number in decoded]
    shown = [
        point
        for line in lines
        for point in (chunks[line.number] if line.number in decoded else line.envelope)
        if low <= point.step <= high
    ]
    expected = reduce(sorted(shown, key=lambda point: point.step), most)
    assert str(select_points(lines, whole, low, high, most)) == str(expected)
