"""All points of a metric of a run, as they came. Blocking."""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.domain.metrics.chunks import CHUNK_POINTS
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.metrics.series import Series
from cloud_ml.domain.tracking.runs import RunRow
from cloud_ml.models import common
from cloud_ml.state.base import StateStore
from cloud_ml.state.metrics import PointRange

MOST_POINTS = 25_000


class MetricHistoryReader:
    """Reads points chunk by chunk."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def page(
        self, run: RunRow, name: str, token: str = "", most: int = MOST_POINTS
    ) -> tuple[Sequence[Point], str]:
        """At most ``most`` points, and the token of the next page. A run without this metric has
        none.

        Args:
            run: The run.
            name: The metric. Of several tasks, it is that which reported last.
            token: ``CHUNK.POINT`` of the first point; empty for the first page.
            most: The most points.

        Raises:
            InvalidRequest: The token is none of ours.
        """
        _read_token(token)
        if (series := self.series(run, name)) is None:
            return [], ""
        return self.page_of(series, token, most)

    def page_of(self, series: Series, token: str, most: int) -> tuple[Sequence[Point], str]:
        """The same of one series.

        Raises:
            InvalidRequest: The token is none of ours.
        """
        number, offset = _read_token(token)
        limit = 1 + (offset + most) // CHUNK_POINTS + 1
        found: list[Point] = []
        for chunk, points in self._store.metrics.chunk_points(series.number, number, limit):
            first = offset if chunk == number else 0
            part = points[first : first + most - len(found)]
            found += part
            if len(found) == most:
                return found, f"{chunk}.{first + len(part)}"
        # Chunks that a restart has divided are short: what is behind them is on the next page.
        return found, self._token_behind(series, number, limit)

    def _token_behind(self, series: Series, number: int, limit: int) -> str:
        read = self._store.metrics.chunk_points(series.number, number, limit + 1)
        return f"{read[-1][0]}.0" if len(read) > limit else ""

    def sample(self, run: RunRow, name: str, point_range: PointRange) -> Sequence[Point]:
        """Points of a range of steps: all, or those that show its shape."""
        series = self.series(run, name)
        return [] if series is None else self._store.metrics.points(series.number, point_range)

    def series(self, run: RunRow, name: str) -> Series | None:
        """The series of a metric."""
        found = self._store.metrics.series_of([run.uid], [name]).get(run.uid, ())
        return max(found, key=lambda one: one.last_at, default=None)


def _read_token(token: str) -> tuple[int, int]:
    if not token:
        return 0, 0
    chunk, dot, point = token.partition(".")
    numbers = chunk, point
    odd = not dot or any(not one.isascii() or not one.isdigit() or len(one) > 9 for one in numbers)
    if odd or int(point) > CHUNK_POINTS:  # all chunks up to that point would be read at once
        raise common.refuse("page_token", token[:80], "the token of the page before")
    return int(chunk), int(point)
