"""Parameters as numbers: a row for each trial, a column for each parameter."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloud_ml.domain.studies.conditions import Condition, only_active
from cloud_ml.domain.studies.constraints import all_hold
from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.values import Parameters, Value
from cloud_ml.tuning.base import Observation, Problem

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
_MOST_TRIALS, _MOST_NUMBERS = 1000, 10_000


class Axes:
    """The columns of a space.

    An ordered parameter is its share, from 0 to 1, of the range. Another is the number of its
    value: two of those are equal, or differ by as much as any others. Constants have no column.
    A parameter that is not active has no number in a row: NaN.

    Attributes:
        unordered: For each column whether it is one of the latter kind.
        sizes: How many values a column has; 0 for endlessly many.
        conditional: Whether there is a parameter that is not always active.
    """

    def __init__(self, space: Sequence[Parameter], constraints: tuple[str, ...] = ()) -> None:
        self._whole = space
        self._constraints = constraints
        self._space = space = [one for one in space if not one.constant]
        self._columns = {one.name: column for column, one in enumerate(space)}
        self.conditional = any(one.active_if for one in space)
        self.unordered = np.array([not one.ordered for one in space], dtype=bool)
        self.sizes = np.array([one.size if one.finite else 0 for one in space], dtype=np.int64)
        self._numbers: list[dict[Any, float]] = [{} for _ in space]
        """For each column the numbers of values that were met."""

    def rows(self, trials: Sequence[Observation]) -> Array:
        """The rows of trials."""
        return self.rows_of([trial.parameters for trial in trials[-_MOST_TRIALS:]])

    def rows_of(self, points: Sequence[Parameters]) -> Array:
        """The rows of points."""
        rows = np.empty((len(points), len(self._space)))
        for column, one in enumerate(self._space):
            if len(known := self._numbers[column]) > _MOST_NUMBERS:
                known.clear()
            values = [point.get(one.name) for point in points]
            keys = list(zip(map(type, values), values, strict=True))
            for key in set(keys).difference(known):
                known[key] = self._at(one, key[1])
            rows[:, column] = [known[key] for key in keys]
        return rows

    def parameters(self, row: Array) -> Parameters:
        """The trial of a row, with all constants."""
        found = {one.name: one.value_at(0) for one in self._whole if one.name not in self._columns}
        for column, one in enumerate(self._space):
            if not np.isnan(row[column]):
                found[one.name] = self._value(column, float(row[column]))
        return found

    def settle(self, rows: Array, luck: np.random.Generator) -> Array:
        """Rows in which those parameters have a number that are active. One that has become active
        gets it by chance.
        """
        if not self.conditional:
            return rows
        rows, fresh = rows.copy(), self.draw(len(rows), luck)
        active: dict[str, Flags] = {}
        for one in self._whole:
            on = np.ones(len(rows), dtype=bool)
            for condition in one.active_if:
                on &= active[condition.name] & self._holds(condition, rows)
            active[one.name] = on
            if (column := self._columns.get(one.name)) is not None:
                at = rows[:, column]
                rows[:, column] = np.where(on, np.where(np.isnan(at), fresh[:, column], at), np.nan)
        return rows

    def satisfies(self, rows: Array) -> Flags:
        """For each row whether it keeps the constraints."""
        if not self._constraints:
            return np.ones(len(rows), dtype=bool)
        kept = [
            all_hold(self._constraints, only_active(self._whole, self.parameters(row)))
            for row in rows
        ]
        return np.array(kept, dtype=bool)

    def fill_gaps(self, rows: Array) -> Array:
        """Rows for who wants a number everywhere: the middle, or a value that no other one is."""
        if not self.conditional:
            return rows
        found: Array = np.where(np.isnan(rows), np.where(self.unordered, -1.0, 0.5), rows)
        return found

    def _holds(self, condition: Condition, rows: Array) -> Flags:
        """For each row whether a condition holds, if its parameter is active."""
        column = self._columns.get(condition.name)
        if column is None:
            return np.ones(len(rows), dtype=bool)
        numbers = rows[:, column]
        known = [
            at
            for at in np.unique(numbers[~np.isnan(numbers)])
            if condition.holds({condition.name: self._value(column, float(at))})
        ]
        found: Flags = np.isin(numbers, known)
        return found

    def _value(self, column: int, at: float) -> Value:
        parameter = self._space[column]
        return parameter.value_at(round(at)) if self.unordered[column] else parameter.at(at)

    def snap(self, rows: Array) -> Array:
        """Rows moved to values that exist."""
        finite = (self.sizes > 0) & ~self.unordered
        size = np.where(finite, self.sizes, 1)
        cells = np.minimum(np.floor(rows * size), size - 1)
        return np.where(finite, (cells + 0.5) / size, rows)

    def draw(self, count: int, luck: np.random.Generator) -> Array:
        """Rows by chance."""
        rows = luck.random((count, len(self._space)))
        sizes = np.where(self.unordered, self.sizes, 1)
        return self.snap(np.where(self.unordered, np.floor(rows * sizes), rows))

    def _at(self, parameter: Parameter, value: Any) -> float:
        if value is None:
            return math.nan
        share = parameter.share_of(value)
        return share if parameter.ordered else round(share * parameter.size - 0.5)


@functools.lru_cache(32)
def axes_of(space: tuple[Parameter, ...], constraints: tuple[str, ...] = ()) -> Axes:
    """The columns of a space. Those of the studies that asked last know the numbers of values that
    they have met: the trials of a study are the same at its next question.
    """
    return Axes(space, constraints)


def chance_of(problem: Problem) -> np.random.Generator:
    """Chance that is the same each time for one trial."""
    digest = hashlib.sha256(f"{problem.seed}/{problem.number}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
