"""What the verdict about two runs takes in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any, cast

from cloud_ml.domain.comparison.verdicts import RunResult, judge
from cloud_ml.domain.metrics.points import Point
from cloud_ml.state.metrics import MetricStore, PointRange
from cloud_ml.usecases.comparison.reproducing import StoredSeries

_POINTS, _SERIES = 1000, 40


class _Store:
    def points(self, number: int, _point_range: PointRange) -> Sequence[Point]:
        return [Point(step + 1000, step + 10**12, step + number / 7) for step in range(_POINTS)]


def _most_memory(series: int) -> int:
    """The bytes that a verdict about two runs with so many series takes at its peak."""
    store: Any = _Store()
    numbers = {("main", f"m{number}", "api"): number for number in range(series)}
    runs = [RunResult(StoredSeries(cast("MetricStore", store), numbers), {}) for _ in range(2)]
    tracemalloc.start()
    try:
        verdict, found = judge(runs[0], runs[1], [], 0.0)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (verdict.word, found.series) == ("identical", series)
    return most


def test_series_are_read_one_after_the_other() -> None:
    """Two runs of ten million points each took three gigabytes together."""
    _most_memory(1)  # what is imported late counts for none
    few, many = _most_memory(1), _most_memory(_SERIES)
    # All at once would be forty times as much. Threads of other tests take some, too.
    assert many < 10 * few, f"{few} bytes for a series, {many} for {_SERIES}"
