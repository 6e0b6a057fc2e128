"""``gp``: the point where a Gaussian process expects the largest improvement."""

from __future__ import annotations

import numpy as np

from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning import qmc
from cloud_ml.tuning.base import Outcome, Problem, first_untried
from cloud_ml.tuning.numeric.axes import Array, Flags, Numbers, axes_of
from cloud_ml.tuning.numeric.candidate_search import CandidateSearch
from cloud_ml.tuning.numeric.process import GaussianProcess, Shape, fit_shape
from cloud_ml.tuning.numeric.warping import warp

_MOST_TRIALS = 500
"""Beyond that, the best and the newest count: the work grows with the cube of their number."""
_LEADERS = 4


def suggest(problem: Problem) -> Parameters:
    """The point of the largest logarithm of expected improvement."""
    if len(problem.of(Outcome.DONE)) < 2:
        return qmc.suggest(problem)
    try:
        return first_untried(problem, _search(problem).best_first())
    except np.linalg.LinAlgError:  # trials so alike that no covariance can be inverted
        return qmc.suggest(problem)


def _search(problem: Problem) -> CandidateSearch:
    """The search for that point."""
    axes = axes_of(problem.space, problem.constraints)
    done, failed = problem.of(Outcome.DONE), problem.of(Outcome.FAILED)
    real = np.array([trial.cost for trial in done], dtype=np.float64)
    # A trial that failed counts as the worst: the search leaves its surroundings.
    known = np.concatenate([real, np.full(len(failed), real.max())])
    rows = axes.rows([*done, *failed])
    kept = _informative_trials(known)
    with_gaps, known = rows[kept], known[kept]
    rows = axes.fill_gaps(with_gaps)
    shape = fit_shape(rows, known, axes.unordered)
    running = axes.fill_gaps(axes.rows(problem.of(Outcome.RUNNING)))
    improvement = _Improvement(rows, warp(known), running, axes.unordered, shape)
    order = np.argsort(improvement.values, kind="stable")
    return CandidateSearch(problem, axes, with_gaps[order[:_LEADERS]], improvement)


class _Improvement:
    """The logarithm of the expected improvement.

    Args:
        rows: The trials that have ended.
        costs: What they cost, warped.
        running: The trials that run. They count as if they had the mean: so none draws another one
            near it.
        unordered: The columns whose values only differ or not.
        shape: What was fitted to the trials.

    Attributes:
        values: What the model expects at the trials that have ended.
    """

    hardly_any = -5.0  # in deviations of all costs

    def __init__(
        self, rows: Array, costs: Array, running: Array, unordered: Flags, shape: Shape
    ) -> None:
        self._rows, self._costs, self._running = rows, costs, running
        self._unordered, self._shape = unordered, shape
        self._model = GaussianProcess(
            np.concatenate([rows, running]),
            np.concatenate([costs, np.zeros(len(running))]),
            unordered,
            shape,
        )
        self.values = self._model.values[: len(costs)]
        self._best = float(self.values.min())

    def value(self, rows: Array) -> Array:
        return self._model.improvement(rows, self._best)

    def value_and_slope(self, rows: Array) -> tuple[Array, Array]:
        return self._model.improvement_and_slope(rows, self._best)

    def with_shorter_lengths(self, by: float) -> _Improvement:
        shape = self._shape.with_shorter_lengths(by)
        return _Improvement(self._rows, self._costs, self._running, self._unordered, shape)


def _informative_trials(costs: Array) -> Numbers:
    """The numbers of the trials that count, in their order."""
    count = len(costs)
    if count <= _MOST_TRIALS:
        return np.arange(count)
    best = np.argsort(costs, kind="stable")[: _MOST_TRIALS // 2]
    newest = np.arange(count - _MOST_TRIALS // 2, count)
    return np.union1d(best, newest)
