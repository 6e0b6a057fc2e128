"""Parameters as numbers: a row for each trial, a column for each parameter."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloud_ml.domain.studies.space import Parameter
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning.base import Observation, Problem

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
_MOST_TRIALS = 1000


class Axes:
    """The columns of a space.

    An ordered parameter is its share, from 0 to 1, of the range. Another is the number of its
    value: two of those are equal, or differ by as much as any others.

    Attributes:
        unordered: For each column whether it is one of the latter kind.
        sizes: How many values a column has; 0 for endlessly many.
    """

    def __init__(self, space: Sequence[Parameter]) -> None:
        self._space = space
        self.unordered = np.array([not one.ordered for one in space], dtype=bool)
        self.sizes = np.array([one.size if one.finite else 0 for one in space], dtype=np.int64)

    def rows(self, trials: Sequence[Observation]) -> Array:
        """The rows of trials."""
        trials = trials[-_MOST_TRIALS:]
        rows = np.empty((len(trials), len(self._space)))
        for column, one in enumerate(self._space):
            known: dict[Any, float] = {}
            for row, trial in enumerate(trials):
                value = trial.parameters[one.name]
                key = (type(value), value)
                if key not in known:
                    known[key] = self._at(one, value)
                rows[row, column] = known[key]
        return rows

    def parameters(self, row: Array) -> Parameters:
        """The trial of a row."""
        return {
            one.name: one.value_at(round(float(at))) if unordered else one.at(float(at))
            for one, at, unordered in zip(self._space, row, self.unordered, strict=True)
        }

    def snapped(self, rows: Array) -> Array:
        """Rows moved to values that exist."""
        finite = (self.sizes > 0) & ~self.unordered
        size = np.where(finite, self.sizes, 1)
        cells = np.minimum(np.floor(rows * size), size - 1)
        return np.where(finite, (cells + 0.5) / size, rows)

    def drawn(self, count: int, luck: np.random.Generator) -> Array:
        """Rows by chance."""
        rows = luck.random((count, len(self._space)))
        sizes = np.where(self.unordered, self.sizes, 1)
        return self.snapped(np.where(self.unordered, np.floor(rows * sizes), rows))

    def _at(self, parameter: Parameter, value: Any) -> float:
        share = parameter.share_of(value)
        return share if parameter.ordered else round(share * parameter.size - 0.5)


def chance_of(problem: Problem) -> np.random.Generator:
    """Chance that is the same each time for one trial."""
    digest = hashlib.sha256(f"{problem.seed}/{problem.number}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))
