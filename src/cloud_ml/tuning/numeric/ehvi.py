"""``ehvi``: the point where Gaussian processes expect the largest gain of hypervolume.

Each objective has a process of its own (M. Emmerich et al., 2006). As these do not depend on each
other, the expectation is a sum over boxes (K. Yang et al., 2019), exactly and with a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning import qmc
from cloud_ml.tuning.base import Outcome, Problem, first_untried
from cloud_ml.tuning.numeric import nsga2
from cloud_ml.tuning.numeric.axes import Array, Flags, Numbers, axes_of
from cloud_ml.tuning.numeric.boxes import Sides, sides_of
from cloud_ml.tuning.numeric.candidate_search import CandidateSearch
from cloud_ml.tuning.numeric.process import GaussianProcess, Shape, fit_shape, log_density, log_h
from cloud_ml.tuning.numeric.warping import warp

_MOST_TRIALS = 500
"""Beyond that, the best and the newest count: the work grows with the cube of their number."""
_LEADERS = 4
_MOST_POINTS = {1: 1, 2: 200, 3: 100, 4: 30}
"""So many points of a front have boxes, by the number of objectives: their number grows fast."""
_BEYOND, _COUNTED = 0.1, 0.75
_HARDLY_ANY = -5.0
_DIGITS = 6
"""What differs by less than a millionth of a deviation is equal: 1e-16 is 0 for a front."""
_LEAST_DIFFERENCE, _LARGEST_EXPONENT = 1e-14, 600.0


def suggest(problem: Problem) -> Parameters:
    """The point of the largest logarithm of expected hypervolume improvement."""
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
    real = nsga2.costs_of(done)
    # A trial that failed counts as the worst: the search leaves its surroundings.
    known = np.concatenate([real, np.tile(real.max(axis=0), (len(failed), 1))])
    rows = axes.rows([*done, *failed])
    kept = _informative_trials(known)
    with_gaps, known = rows[kept], known[kept]
    rows = axes.fill_gaps(with_gaps)
    trials = _Trials(rows, axes.fill_gaps(axes.rows(problem.of(Outcome.RUNNING))), axes.unordered)
    # Logarithms would make a gain of costs that are nearly 0, which is none of hypervolume.
    costs = np.column_stack([warp(column, logarithms=False) for column in known.T])
    shapes = [
        fit_shape(rows, np.ascontiguousarray(column), axes.unordered, logarithms=False)
        for column in known.T
    ]
    gain = _ExpectedGain(trials, costs, shapes)
    return CandidateSearch(problem, axes, with_gaps[gain.front[:_LEADERS]], gain)


def _informative_trials(costs: Array) -> Numbers:
    """The numbers of the trials that count, in their order."""
    count = len(costs)
    if count <= _MOST_TRIALS:
        return np.arange(count)
    best = nsga2.best_first(costs)[: _MOST_TRIALS // 2]
    return np.union1d(best, np.arange(count - _MOST_TRIALS // 2, count))


def infer_reference(front: Array, costs: Array) -> Array:
    """The worst cost that counts, by each objective: a tenth of the range of the front beyond its
    worst, as in BoTorch, but not less than three quarters of all trials have. Else the rest of the
    front would be worth nothing where a trial at one end of it dominates most others. The worst of
    all trials would have three objectives searched at the ends of the front only.
    """
    worst = front.max(axis=0)
    reach = worst - front.min(axis=0)
    reach = np.where(reach > 0, reach, 1.0)  # a deviation
    reference: Array = np.maximum(worst + _BEYOND * reach, np.quantile(costs, _COUNTED, axis=0))
    return reference


@dataclass(frozen=True)
class _Trials:
    """Trials as rows: those that have ended, and those that run."""

    ended: Array
    running: Array
    unordered: Flags


class _ExpectedGain:
    """The logarithm of the expected gain of hypervolume.

    Args:
        trials: What is known. Trials that run count as if they had the mean, as in ``gp``.
        costs: What those that have ended cost, warped: a column for each objective.
        shapes: What was fitted, for each objective.

    Attributes:
        front: The numbers of the trials on the front, the lonely first.
    """

    def __init__(self, trials: _Trials, costs: Array, shapes: Sequence[Shape]) -> None:
        self._trials, self._costs, self._shapes = trials, costs, shapes
        self.hardly_any = _HARDLY_ANY * len(shapes)
        rows = np.concatenate([trials.ended, trials.running])
        liars = np.zeros((len(trials.running), len(shapes)))
        whole = np.concatenate([costs, liars])
        self._models = [
            GaussianProcess(rows, np.ascontiguousarray(column), trials.unordered, shape)
            for column, shape in zip(whole.T, shapes, strict=True)
        ]
        expected = np.column_stack([model.values[: len(costs)] for model in self._models])
        values = np.round(expected, _DIGITS)
        self.front = nsga2.first_front(values)
        front = values[self.front]
        self._sides = sides_of(front[: _MOST_POINTS[len(shapes)]], infer_reference(front, values))

    def value(self, rows: Array) -> Array:
        predicted = [model.predict(rows) for model in self._models]
        found = _sum_of_logs(self._logs_of_boxes(self._lengths(predicted)))
        for model, (_, deviation) in zip(self._models, predicted, strict=True):
            if model.noisy:
                found = found + model.news_and_slope(deviation)[0]
        return found

    def value_and_slope(self, rows: Array) -> tuple[Array, Array]:
        predicted = [model.predict_with_slopes(rows) for model in self._models]
        lengths = self._lengths([one[:2] for one in predicted])
        logs = self._logs_of_boxes(lengths)
        found, slope = _sum_of_logs(logs), np.zeros_like(rows)
        shares = np.exp(logs - found[:, None])
        for number, model in enumerate(self._models):
            _, deviation, mean_slope, deviation_slope = predicted[number]
            by_mean, by_deviation = lengths[number].slopes(shares)
            if model.noisy:
                news, more = model.news_and_slope(deviation)
                found, by_deviation = found + news, by_deviation + more
            slope += by_mean[:, None] * mean_slope + by_deviation[:, None] * deviation_slope
        return found, slope

    def _lengths(self, predicted: Sequence[tuple[Array, Array]]) -> list[_Lengths]:
        return [_Lengths(*one, sides) for one, sides in zip(predicted, self._sides, strict=True)]

    @staticmethod
    def _logs_of_boxes(lengths: Sequence[_Lengths]) -> Array:
        """For each row the logarithms of how much of each box is expected to be gained."""
        found: Array = np.add.reduce([one.logs_of_boxes() for one in lengths])
        return found

    def with_shorter_lengths(self, by: float) -> _ExpectedGain:
        shapes = [shape.with_shorter_lengths(by) for shape in self._shapes]
        return _ExpectedGain(self._trials, self._costs, shapes)


class _Lengths:
    """How much of each side of boxes is expected to lie above a normal cost, for each row."""

    def __init__(self, mean: Array, deviation: Array, sides: Sides) -> None:
        self._sides, deviation = sides, deviation[:, None]
        self._z = (sides.edges[1:] - mean[:, None]) / deviation
        below = _after_endless(log_h(self._z) + np.log(deviation))
        upper = below[:, sides.upper]
        apart = np.maximum(upper - below[:, sides.lower], _LEAST_DIFFERENCE)
        self._logs: Array = upper + np.log(-np.expm1(-apart))

    def logs_of_boxes(self) -> Array:
        """The logarithms, a column for each box."""
        return self._logs[:, self._sides.of_box]

    def slopes(self, shares: Array) -> tuple[Array, Array]:
        """The gradients of the logarithm of a sum of boxes, by the mean and by the deviation. Boxes
        have these shares of the sum.
        """
        by_mean = self._difference(log_ndtr(self._z))[:, self._sides.of_box]
        by_deviation = self._difference(log_density(self._z))[:, self._sides.of_box]
        return -(shares * by_mean).sum(axis=1), (shares * by_deviation).sum(axis=1)

    def _difference(self, logs: Array) -> Array:
        """The difference of numbers at both ends of each side, to its length."""
        whole, sides = _after_endless(logs), self._sides
        upper = np.minimum(whole[:, sides.upper] - self._logs, _LARGEST_EXPONENT)
        lower = np.minimum(whole[:, sides.lower] - self._logs, _LARGEST_EXPONENT)
        found: Array = np.exp(upper) - np.exp(lower)
        return found


def _after_endless(logs: Array) -> Array:
    """Logarithms at edges, with those at the first edge: minus infinity."""
    return np.hstack([np.full((len(logs), 1), -np.inf), logs])


def _sum_of_logs(logs: Array) -> Array:
    """The logarithm of the sum of each row."""
    most = logs.max(axis=1)
    found: Array = most + np.log(np.exp(logs - most[:, None]).sum(axis=1))
    return found
