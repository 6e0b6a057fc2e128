"""Two or more series of a metric at equal steps. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cloud_ml.domain.metrics.points import Point


@dataclass(frozen=True)
class CommonStepValues:
    """``values`` at the last common ``step``, and the largest difference over all ``steps``."""

    step: int
    values: Sequence[float]
    steps: int
    largest: float
    at: int


def at_equal_steps(series: Sequence[Sequence[Point]]) -> CommonStepValues | None:
    """Compare series at the steps that all have; ``None`` if there is none.

    Of several values at one step, the last one counts.
    """
    tables = [{point.step: point.value for point in points} for points in series]
    common = sorted(set(tables[0]).intersection(*tables[1:]))
    if not common:
        return None
    spreads = [difference([table[step] for table in tables]) for step in common]
    largest = max(range(len(common)), key=lambda at: (spreads[at], -at))
    return CommonStepValues(
        common[-1],
        [table[common[-1]] for table in tables],
        len(common),
        spreads[largest],
        common[largest],
    )


def difference(values: Sequence[float]) -> float:
    """Between the largest and the smallest: 0 if all are NaN, infinite if only some are."""
    nan = [math.isnan(value) for value in values]
    if any(nan):
        return 0.0 if all(nan) else math.inf
    low, high = min(values), max(values)
    return 0.0 if low == high else high - low
