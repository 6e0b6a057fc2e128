"""Where an acquisition function is largest: of many candidates the best are moved uphill."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

import numpy as np
from scipy.optimize import minimize

from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning.base import Problem, points_by_chance
from cloud_ml.tuning.numeric.axes import Array, Axes, Numbers, chance_of

_CANDIDATES, _NEAR, _STARTS, _STEPS = 320, 32, 4, 12
_DOUBTS = (1.4, 2.8, 4.2)
"""Logarithms of inverse squared lengths."""
_SWEEPS, _MOST_ALTERNATIVES = 2, 40
_LEAST_KEPT, _HALVINGS = 32, 6


class Acquisition(Protocol):
    """What rows are worth to a search: a logarithm, of more the larger it is.

    Attributes:
        hardly_any: What is worth less is hardly worth a trial.
    """

    hardly_any: float

    def value(self, rows: Array) -> Array:
        """For each row what it is worth."""
        ...

    def value_and_slope(self, rows: Array) -> tuple[Array, Array]:
        """The same, and its gradient by the ordered columns; 0 for the others."""
        ...

    def with_shorter_lengths(self, by: float) -> Acquisition:
        """The same of a model whose lengths are shorter."""
        ...


class CandidateSearch:
    """Looks for the point that is worth most.

    Args:
        problem: The question.
        axes: The columns of its space.
        leaders: Rows near which it pays to look, with gaps.
        acquisition: What rows are worth.
    """

    def __init__(
        self, problem: Problem, axes: Axes, leaders: Array, acquisition: Acquisition
    ) -> None:
        self._problem, self._axes = problem, axes
        self._leaders, self._acquisition = leaders, acquisition
        self._luck = chance_of(problem)
        self._doubts = problem.number % 2 == 1

    def best_first(self) -> Iterator[Parameters]:
        """Points, the most promising first."""
        candidates = self._candidates()
        values = self._judge(candidates)
        order = np.argsort(-values, kind="stable")
        starts = candidates[_spread(order)]
        found = self._pull_back(starts, self._settle(self._climb(starts)))
        found = self._neighbours(found)
        values_found = self._value(found)
        for number in np.argsort(-values_found, kind="stable"):
            yield self._axes.parameters(found[number])
        for number in order:
            yield self._axes.parameters(candidates[number])

    def _judge(self, candidates: Array) -> Array:
        """What candidates are worth. Where that is next to nothing, each second trial doubts
        the lengths that were fitted, and shortens them: else the model would ask for the same
        minimum again and again (F. Berkenkamp et al., 2019).
        """
        values = self._value(candidates)
        fitted = self._acquisition
        for doubt in _DOUBTS if self._doubts else ():
            if values.max() > fitted.hardly_any:
                break
            self._acquisition = fitted.with_shorter_lengths(doubt)
            values = self._value(candidates)
        return values

    def _value(self, rows: Array) -> Array:
        return self._acquisition.value(self._axes.fill_gaps(rows))

    def _settle(self, rows: Array) -> Array:
        return self._axes.settle(self._axes.snap(rows), self._luck)

    def _candidates(self) -> Array:
        anywhere = self._axes.draw(_CANDIDATES, self._luck)
        near = np.repeat(self._leaders, _NEAR, axis=0)
        width = 10.0 ** self._luck.uniform(-3, -0.5, (len(near), 1))
        moved = np.clip(near + width * self._luck.standard_normal(near.shape), 0, 1)
        moved = np.where(self._axes.unordered, near, moved)
        rows = self._settle(np.concatenate([anywhere, moved]))
        if not self._problem.constraints:
            return rows
        rows = rows[self._axes.satisfies(rows)]
        if len(rows) >= _LEAST_KEPT:
            return rows
        points = points_by_chance(self._problem, "/gp")
        return np.concatenate([rows, self._axes.rows_of(list(islice(points, _LEAST_KEPT)))])

    def _climb(self, starts: Array) -> Array:
        """All starts moved uphill at once: the sum of their values has a gradient of blocks."""
        free = ~self._axes.unordered
        if not free.any():
            return starts
        absent, points = np.isnan(starts), self._axes.fill_gaps(starts).copy()

        def value(flat: Array) -> tuple[float, Array]:
            points[:, free] = flat.reshape(len(points), -1)
            values, slopes = self._acquisition.value_and_slope(points)
            slopes[absent] = 0.0
            return -float(values.sum()), -slopes[:, free].ravel()

        first = points[:, free].ravel()
        found = minimize(
            value, first, jac=True, bounds=[(0.0, 1.0)] * len(first), method="L-BFGS-B",
            options={"maxiter": _STEPS, "maxfun": 2 * _STEPS},
        )  # fmt: skip
        points[:, free] = found.x.reshape(len(points), -1)
        points[absent] = np.nan
        return points

    def _pull_back(self, starts: Array, found: Array) -> Array:
        """Points that keep the constraints: nearer to their start where they did not."""
        for _ in range(_HALVINGS if self._problem.constraints else 0):
            broken = ~self._axes.satisfies(found)
            if not broken.any():
                return found
            middle = np.where(self._axes.unordered, found, (starts + found) / 2)
            found = np.where(broken[:, None], self._settle(middle), found)
        if self._problem.constraints:
            found = np.where(self._axes.satisfies(found)[:, None], found, starts)
        return found

    def _neighbours(self, found: Array) -> Array:
        """The same points, each moved along columns of few values while that is better."""
        columns = np.flatnonzero(self._axes.sizes > 0)
        for _ in range(_SWEEPS if len(columns) else 0):
            for column in columns:
                found = np.stack([self._best_along(row, int(column)) for row in found[:2]])
        return found

    def _best_along(self, row: Array, column: int) -> Array:
        if np.isnan(row[column]):
            return row
        size = int(self._axes.sizes[column])
        cells = np.arange(size, dtype=np.float64)
        if size > _MOST_ALTERNATIVES:
            cells = np.floor(np.linspace(0, size - 1, _MOST_ALTERNATIVES))
        rows = np.repeat(row[None, :], len(cells) + 1, axis=0)
        rows[:-1, column] = cells if self._axes.unordered[column] else (cells + 0.5) / size
        rows = self._axes.settle(rows, self._luck)
        if self._problem.constraints:
            kept = self._axes.satisfies(rows)
            rows = rows[kept] if kept.any() else rows
        best: Array = rows[np.argmax(self._value(rows))]
        return best


def _spread(order: Numbers) -> Numbers:
    """The best few, and some from further down: the best alone may all be one hill."""
    step = max(1, len(order) // 64)
    return order[[0, 1, *(step * number for number in range(2, _STARTS))]]
