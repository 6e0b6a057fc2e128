"""Points that are not packed yet are read, replaced and found again as those that are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_ml.domain.metrics import chunks, series
from cloud_ml.domain.metrics.chunks import CHUNK_POINTS, DamagedChunk
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import TAIL_POINTS, MetricLimits
from cloud_ml.domain.tracking.runs import CLIENT_TASK, LogBatch, TrackingLimits
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.state.metrics import NOT_READ, FilePosition, PointRange, ReportFile
from cloud_ml.testing.state.tracking.samples import add_run

_LIMITS = MetricLimits(series=2, points=100_000)
_STEPS = st.none() | st.integers(0, 60)
_VALUES = st.tuples(
    st.just("loss"), _STEPS, st.integers(0, 3), st.floats(), st.sampled_from([0, 0, 0, 1, 2])
).map(lambda value: Value(*value))
_READS = st.lists(st.lists(_VALUES, min_size=1, max_size=6), max_size=20)


def _keep(reads: list[list[Value]], begin: int) -> MemoryStateStore:
    """A store that was told so, after a chunk that is nearly full or not."""
    store = MemoryStateStore()
    uid = add_run(store, "one")
    before = NOT_READ
    first = [[Value("loss", step, 9, 0.5) for step in range(begin)]] if begin else []
    for number, values in enumerate([*first, *reads]):
        after = FilePosition("file", number + 1)
        file = ReportFile(1, CLIENT_TASK, "report", "file")
        store.metrics.append(uid, file, values, before=before, after=after, limits=_LIMITS)
        before = after
    return store


def _readings(store: MemoryStateStore) -> Any:
    (uid,) = [run.uid for run in store.metrics.runs_with_points(0, 9)]
    (row,) = store.metrics.series(uid)
    ranges = [
        PointRange(low, high, most, earlier)
        for low, high in ((-1, 10**6), (3, 40))
        for most in (5000, 9)
        for earlier in (False, True)
    ]
    return (
        str(row),
        str(store.metrics.chunk_points(row.number, 0, 99)),
        [
            str(store.metrics.points(row.number, point_range))
            for point_range in ranges
            if point_range.most > 9
        ],
        [_extremes(store.metrics.points(row.number, point_range)) for point_range in ranges],
    )


def _extremes(points: Sequence[Point]) -> tuple[float | None, float | None]:
    """What a chart must show, whichever points stand for a chunk."""
    numbers = [point.value for point in points if not point.is_nan]
    return min(numbers, default=None), max(numbers, default=None)


@settings(max_examples=40, deadline=None)
@given(_READS, st.sampled_from([0, CHUNK_POINTS - 10]))
def test_a_tail_makes_no_difference_to_readers(reads: list[list[Value]], begin: int) -> None:
    if not begin and not reads:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series, "TAIL_POINTS", 0)
        packed = _readings(_keep(reads, begin))
    assert _readings(_keep(reads, begin)) == packed


def test_a_chunk_is_packed_with_each_seventeenth_point_and_when_it_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed: list[int] = []

    def encode(points: Sequence[Point]) -> bytes:
        packed.append(len(points))
        return encode_all(points)

    encode_all = chunks.encode
    monkeypatch.setattr(chunks, "encode", encode)
    store = MemoryStateStore()
    uid = add_run(store, "one")
    for step in range(CHUNK_POINTS + 2):
        batch = LogBatch(values=[Value("loss", step, step, float(step))])
        store.tracking.log(uid, batch, limits=TrackingLimits(), metric_limits=_LIMITS)
    assert packed == [*range(1, CHUNK_POINTS, TAIL_POINTS + 1), CHUNK_POINTS, 1]


def test_a_damaged_chunk_tells_no_number() -> None:
    with pytest.raises(DamagedChunk):
        chunks.count(b"\x01")
