"""``tpe``: the tree-structured Parzen estimator, multivariate (J. Bergstra et al., 2011; S. Falkner
et al., 2018).

Trials are divided in the good and the others. A point is looked for that is probable among the good
ones and improbable among the others. In spaces with lists of values and without conditions, each second
trial looks for the best value of each parameter on its own. A trial in which a parameter is not active
says nothing about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning import qmc
from cloud_ml.tuning.base import Outcome, Problem, first_untried
from cloud_ml.tuning.numeric.axes import Array, Axes, Numbers, axes_of, chance_of

# As in Optuna's TPESampler: a tenth of the trials is good, of 24 candidates one is taken, the
# newest 25 trials count in full, and 10 trials come before.
_GOOD_SHARE, _MOST_GOOD = 0.1, 25
_CANDIDATES, _ROUNDS = 24, 20
_MOST_KERNELS, _NEW = 100, 25
_FIRST = 10


def suggest(problem: Problem) -> Parameters:
    """The candidate with the best ratio of the two densities."""
    done = problem.of(Outcome.DONE)
    if len(done) < 2 or len(problem.observations) < _FIRST:
        return qmc.suggest(problem)
    axes, luck = axes_of(problem.space, problem.constraints), chance_of(problem)
    order = np.argsort([trial.cost or 0.0 for trial in done], kind="stable")
    count = min(math.ceil(_GOOD_SHARE * len(done)), _MOST_GOOD)
    best_ones = {id(done[number]) for number in order[:count]}
    observed = [trial for trial in problem.observations if trial.outcome is not Outcome.IGNORED]
    others = [trial for trial in observed if id(trial) not in best_ones]
    good = Parzen(axes.rows([trial for trial in done if id(trial) in best_ones]), axes)
    bad = Parzen(axes.rows(others), axes)
    # By whole rows, a value of a list is hardly tried again if it needs other numbers than those of the
    # good trials. So each second trial chooses each parameter on its own. Not so under conditions: what
    # is good for a parameter depends on the one that makes it active.
    lists = axes.unordered.any() and not axes.conditional
    apart = lists and problem.number % 2 == 1

    def candidates() -> Iterator[Parameters]:
        for _ in range(_ROUNDS):
            rows = good.draw(_CANDIDATES, luck)
            if apart:
                ratios = good.log_densities(rows) - bad.log_densities(rows)
                best = rows[np.argmax(ratios, axis=0), np.arange(rows.shape[1])]
                row = axes.settle(best[None, :], luck)
                if axes.satisfies(row)[0]:
                    yield axes.parameters(row[0])
                    continue
            rows = axes.settle(rows, luck)
            rows = rows[axes.satisfies(rows)]
            if not len(rows):
                continue
            ratio = good.log_density(rows) - bad.log_density(rows)
            yield axes.parameters(rows[np.argmax(ratio)])

    return first_untried(problem, candidates())


class Parzen:
    """A density: the mean of a kernel for each row, in the order of trials, and of one as wide as the
    space.
    """

    def __init__(self, rows: Array, axes: Axes) -> None:
        self._axes = axes
        columns = rows.shape[1]
        middle = np.where(axes.unordered, -1.0, 0.5)  # no value has the number -1
        widths = np.concatenate([_widths(rows), np.ones((1, columns))])
        centers = np.concatenate([rows, middle[None, :]])
        self._widths = np.where(np.isnan(centers), 1.0, widths)
        self._centers = np.where(np.isnan(centers), middle, centers)
        weights = np.append(_weights(len(rows)), 1.0)
        self._weights = weights / weights.sum()
        low, high = ndtr(-self._centers / self._widths), ndtr((1 - self._centers) / self._widths)
        self._low, self._mass = low, np.maximum(high - low, 1e-300)

    def draw(self, count: int, luck: np.random.Generator) -> Array:
        """Rows by chance, of this density."""
        kernels = luck.choice(len(self._centers), size=count, p=self._weights)
        centers = self._centers[kernels]
        share = luck.random(centers.shape)
        at = ndtri(np.clip(self._low[kernels] + share * self._mass[kernels], 1e-15, 1 - 1e-15))
        rows = np.clip(centers + at * self._widths[kernels], 0, 1)
        anywhere = self._axes.draw(count, luck)
        keeps = luck.random(centers.shape) < self._kept_share(np.maximum(self._axes.sizes, 1))
        named = np.where((centers >= 0) & keeps, centers, anywhere)
        return self._axes.snap(np.where(self._axes.unordered, named, rows))

    def log_density(self, rows: Array) -> Array:
        """The logarithm of the density at rows."""
        whole = np.zeros((len(rows), len(self._centers)))
        for column in range(rows.shape[1]):
            whole += self._log_kernels(rows, column)
        return self._log_mean(whole)

    def log_densities(self, rows: Array) -> Array:
        """The same of each column on its own."""
        columns = range(rows.shape[1])
        return np.stack([self._log_mean(self._log_kernels(rows, one)) for one in columns], axis=1)

    def _log_mean(self, parts: Array) -> Array:
        """The logarithm of the weighted mean of kernels, given the logarithm of each at each row."""
        most = parts.max(axis=1)
        found: Array = np.log(np.exp(parts - most[:, None]) @ self._weights) + most
        return found

    def _log_kernels(self, rows: Array, column: int) -> Array:
        """The logarithm of each kernel at each row, on one column."""
        size = int(self._axes.sizes[column])
        at, center = rows[:, column, None], self._centers[:, column]
        present = ~np.isnan(at)
        if self._axes.unordered[column]:
            return np.where(present, self._log_named(at, center, size), 0.0)
        width = self._widths[:, column]
        z = (at - center) / width
        if size:
            half = 0.5 / (size * width)
            part = _log_between(z - half, z + half)
        else:
            part = -0.5 * z * z - np.log(width)
        return np.where(present, part - np.log(self._mass[:, column]), 0.0)

    def _log_named(self, at: Array, center: Array, size: int) -> Array:
        """Of a value of a list: mostly that of the kernel, sometimes any."""
        kept = float(self._kept_share(size))
        other = (1 - kept) / size
        return np.where(
            center < 0, -math.log(size), np.log(np.where(at == center, kept + other, other))
        )

    def _kept_share(self, sizes: Numbers | int) -> Array | float:
        """How sure a kernel is of its value in a list, before any value has its share: the more, the
        more kernels there are.
        """
        kernels = len(self._centers)
        return kernels / (kernels + sizes)


def _weights(count: int) -> Array:
    """What trials count for, in their order: of many the old ones less."""
    ramp = np.linspace(1 / max(count, 1), 1.0, max(count - _NEW, 0))
    return np.append(ramp, np.ones(min(count, _NEW)))


def _widths(rows: Array) -> Array:
    """The widths of kernels on each axis: the distance of the farther neighbour, as J. Bergstra has
    it. Where good trials gather, kernels become narrow.
    """
    if np.isnan(rows).any():
        return np.column_stack([_widths_of_column(column) for column in rows.T])
    count, columns = rows.shape
    if count == 0:
        return np.empty((0, columns))
    order = np.argsort(rows, axis=0, kind="stable")
    sorted_rows = np.take_along_axis(rows, order, axis=0)
    if count == 1:
        found = np.maximum(sorted_rows, 1 - sorted_rows)
    else:
        gaps = np.diff(sorted_rows, axis=0)
        found = np.maximum(np.vstack([gaps[:1], gaps]), np.vstack([gaps, gaps[-1:]]))
    widths = np.empty_like(rows)
    np.put_along_axis(widths, order, found, axis=0)
    least = 1 / min(_MOST_KERNELS, count + 2)
    clipped: Array = np.clip(widths, least, 1.0)
    return clipped


def _widths_of_column(column: Array) -> Array:
    """The same of one axis, on which some trials have no number."""
    present = ~np.isnan(column)
    widths = np.ones(len(column))
    widths[present] = _widths(column[present, None])[:, 0]
    return widths


def _log_between(low: Array, high: Array) -> Array:
    """The logarithm of the normal mass between, from whichever side is exact."""
    mirrored = low > 0
    near, far = np.where(mirrored, -low, high), np.where(mirrored, -high, low)
    upper, lower = log_ndtr(near), log_ndtr(far)
    found: Array = upper + np.log1p(-np.exp(np.minimum(lower - upper, -1e-12)))
    return found
