"""A point of a series."""

from __future__ import annotations

import math
from typing import NamedTuple

LARGEST_STEP = 10**18
"""Steps lie between this number and its negative: differences of differences fit into 64 bits."""
LARGEST_TIME = 10**15
"""Milliseconds since 1970; far in the future."""
PointRow = tuple[int, int, float]
"""Step, time and value: a point that is only passed on."""


class Point(NamedTuple):
    """One value of a metric: at which step, when (milliseconds since 1970), and what.

    NaN and the infinities are values like any other.
    """

    step: int
    at: int
    value: float

    @property
    def is_nan(self) -> bool:
        """Whether the value is no number."""
        return math.isnan(self.value)
