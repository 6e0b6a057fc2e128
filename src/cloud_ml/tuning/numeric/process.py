"""A Gaussian process: what costs are to be expected where nobody has looked yet.

The kernel is Matérn's with 5/2, with a length for each column. Lengths, scale and noise are the most
probable ones under priors as BoTorch has them, whose lengths grow with the number of columns.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri
from scipy.optimize import minimize
from scipy.special import erfcx, log_ndtr

from cloud_ml.tuning.numeric.axes import Array, Flags
from cloud_ml.tuning.numeric.warping import warp

_ROOT5 = math.sqrt(5)
_LEAST_NOISE, _LEAST_VARIANCE = 1e-6, 1e-12
_NOISY = 0.01
"""From this share of the variance of costs on, what was fitted is noise. Below it stands what the prior
says of few trials without noise, too.
"""
_SCALE_PRIOR = (0.0, 1.0)
_NOISE_PRIOR = (-6.0, 2.0)
_LENGTH_SPREAD, _SHORTER = 2 * math.sqrt(3), 4.0
_STEPS = 25
_MOST_INVERTED = 200
_GROWTH, _EACH_UNTIL, _MOST_FITTED = 1.1, 12, 250
_SMALL_Z = -1.0
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Shape:
    """What was fitted: the logarithms of inverse squared lengths, of the scale, and of noise."""

    weights: tuple[float, ...]
    scale: float
    noise: float

    def with_shorter_lengths(self, by: float) -> Shape:
        """The same with shorter lengths."""
        return replace(self, weights=tuple(weight + by for weight in self.weights))


def matern(square: Array) -> Array:
    """The kernel at squared distances."""
    distance: Array = np.sqrt(square)
    distance *= _ROOT5
    decay = np.exp(-distance)
    # In place, since most of the time goes to the memory of results: (1 + d + d²/3) exp(-d).
    found = distance * distance
    found /= 3
    found += distance
    found += 1
    found *= decay
    return found


def matern_and_slope(square: Array) -> tuple[Array, Array]:
    """The same, and its derivative by the squared distances."""
    distance = _ROOT5 * np.sqrt(square)
    decay = np.exp(-distance)
    return (1 + distance + distance * distance / 3) * decay, -5 / 6 * (1 + distance) * decay


class GaussianProcess:
    """The posterior, given rows and their standardised costs.

    Args:
        rows: The trials.
        costs: What they cost.
        unordered: The columns whose values only differ or not.
        shape: See ``fit_shape``.

    Attributes:
        values: What is expected at the rows; the costs themselves where there is no noise.
        noisy: Whether values have noise.
    """

    def __init__(self, rows: Array, costs: Array, unordered: Flags, shape: Shape) -> None:
        weights = np.exp(np.array(shape.weights))
        self._rows = rows
        self._step = np.where(unordered, 0.0, 2 * weights)
        self._distances = Distances(rows, weights, unordered)
        self._scale = math.exp(shape.scale)
        covariance = self._scale * matern(self._distances.squares(rows))
        self._noise = math.exp(shape.noise) + _LEAST_NOISE
        covariance[np.diag_indices_from(covariance)] += self._noise
        self._lower = cholesky(covariance, lower=True, check_finite=False)
        self._factors = cho_solve((self._lower, True), costs, check_finite=False)
        self.noisy = self._noise > _NOISY
        # What is expected at the trials. Of values with noise the least is mostly luck.
        self.values: Array = costs - self._noise * self._factors if self.noisy else costs
        few = len(rows) <= _MOST_INVERTED
        self._inverse: Array | None = dtrtri(self._lower, lower=1)[0] if few else None

    def improvement(self, rows: Array, best: float) -> Array:
        """The logarithm of the expected improvement on ``best`` (S. Ament et al., 2023); with noise
        of the augmented one (D. Huang et al., 2006).
        """
        mean, deviation = self.predict(rows)
        found = log_h((best - mean) / deviation) + np.log(deviation)
        return found + self.news_and_slope(deviation)[0] if self.noisy else found

    def improvement_and_slope(self, rows: Array, best: float) -> tuple[Array, Array]:
        """The same, and its gradient by the ordered columns; 0 for the others."""
        mean, deviation, by_mean, by_deviation = self.predict_with_slopes(rows)
        z = (best - mean) / deviation
        whole = log_h(z)
        down = np.exp(log_ndtr(z) - whole) / deviation
        up = np.exp(log_density(z) - whole) / deviation
        whole += np.log(deviation)
        if self.noisy:
            news, more = self.news_and_slope(deviation)
            whole, up = whole + news, up + more
        return whole, up[:, None] * by_deviation - down[:, None] * by_mean

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """For each row the mean of what is expected there, and the deviation."""
        kernel = self._scale * matern(self._distances.squares(rows))
        return kernel @ self._factors, self._deviation(self._solve_triangle(kernel.T))

    def predict_with_slopes(self, rows: Array) -> tuple[Array, Array, Array, Array]:
        """The same, and the gradients of both by the ordered columns; 0 for the others."""
        kernel, slope = matern_and_slope(self._distances.squares(rows))
        kernel, slope = self._scale * kernel, self._scale * slope
        solved = self._solve_triangle(kernel.T)
        deviation = self._deviation(solved)
        back = self._solve_triangle(solved, transposed=True).T
        by_mean = self._sum_slopes(rows, slope * self._factors)
        by_deviation = self._sum_slopes(rows, slope * back) / -deviation[:, None]
        return kernel @ self._factors, deviation, by_mean, by_deviation

    def news_and_slope(self, deviation: Array) -> tuple[Array, Array]:
        """The logarithm of the share of a deviation that a trial with noise would take away, and its
        derivative. Without that factor, the best trial would be repeated again and again.
        """
        square = deviation * deviation
        half = 0.5 * np.log1p(square / self._noise)
        slope = deviation / (self._noise + square) / np.expm1(half)
        return np.log(-np.expm1(-half)), slope

    def _solve_triangle(self, right: Array, *, transposed: bool = False) -> Array:
        """The system of the triangle, or of its transpose, solved."""
        if self._inverse is not None:  # a product has less of a beginning than a solver
            return (self._inverse.T if transposed else self._inverse) @ right
        solved: Array = solve_triangular(
            self._lower, right, lower=True, trans=int(transposed), check_finite=False
        )
        return solved

    def _deviation(self, solved: Array) -> Array:
        variance = self._scale - np.einsum("nm,nm->m", solved, solved)
        root: Array = np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
        return root

    def _sum_slopes(self, rows: Array, by_square: Array) -> Array:
        """For each row the gradient of a sum over all trials, given the derivatives by distances."""
        found: Array = self._step * (rows * by_square.sum(1)[:, None] - by_square @ self._rows)
        return found


class Distances:
    """Weighted squared distances to some trials: of an unordered column 1 where the values differ."""

    def __init__(self, rows: Array, weights: Array, unordered: Flags) -> None:
        ordered = ~unordered
        self._ordered: slice | Flags = slice(None) if ordered.all() else ordered
        self._roots = np.sqrt(weights[ordered])
        self._unordered = [(column, weights[column]) for column in np.flatnonzero(unordered)]
        self._rows = rows
        self._ends = rows[:, self._ordered] * self._roots
        self._end_squares = np.einsum("mn,mn->m", self._ends, self._ends)
        self._ends_twice = 2 * self._ends.T

    def squares(self, rows: Array) -> Array:
        """For each of these rows the distances to all trials."""
        starts = rows[:, self._ordered] * self._roots
        found = np.einsum("mn,mn->m", starts, starts)[:, None] + self._end_squares
        found -= starts @ self._ends_twice
        for column, weight in self._unordered:
            found += weight * (rows[:, column, None] != self._rows[:, column])
        # By rounding, the difference of two large numbers may be below 0.
        cut: Array = np.maximum(found, 0.0, out=found)
        return cut


def log_density(z: Array) -> Array:
    """The logarithm of the density of the normal distribution."""
    found: Array = -0.5 * z * z - _LOG_ROOT_2PI
    return found


def log_h(z: Array) -> Array:
    """The logarithm of ``pdf(z) + z cdf(z)``, also where that is smaller than any number."""
    # Both forms are computed for all numbers and one is chosen, so each is kept where it is finite.
    usual = np.maximum(z, _SMALL_Z)
    near = np.log(np.exp(-0.5 * usual * usual - _LOG_ROOT_2PI) + usual * np.exp(log_ndtr(usual)))
    far = np.minimum(z, _SMALL_Z)
    ratio = erfcx(-far / math.sqrt(2)) * np.abs(far) * math.sqrt(math.pi / 2)
    # 1 - ratio tends to 1 / z**2, and has no digits left that far out.
    rest = np.where(far < -1e5, 1 / (far * far), 1 - np.minimum(ratio, 1.0))
    tail = -0.5 * far * far - _LOG_ROOT_2PI + np.log(np.maximum(rest, 1e-300))
    return np.where(z > _SMALL_Z, near, tail)


def fit_shape(rows: Array, costs: Array, unordered: Flags, *, logarithms: bool = True) -> Shape:
    """The most probable shape, of the first trials only: it changes as their number grows by a
    tenth, so a process that has seen the study before need not fit again. One that has not comes to
    the same.

    Args:
        rows: The trials.
        costs: What they cost, as they are: those that are fitted are warped without the later ones,
            which would make each fit another one.
        unordered: The columns whose values only differ or not.
        logarithms: See ``warp``.
    """
    count = _milestone(len(rows))
    return _fit(rows[:count].tobytes(), costs[:count].tobytes(), unordered.tobytes(), logarithms)


def _milestone(count: int) -> int:
    """The largest milestone that so many trials have passed."""
    found = _EACH_UNTIL
    while int(found * _GROWTH) <= count:
        found = int(found * _GROWTH)
    return min(found, count, _MOST_FITTED)


@functools.lru_cache(64)
def _fit(rows: bytes, costs: bytes, unordered: bytes, logarithms: bool) -> Shape:
    columns = np.frombuffer(unordered, dtype=bool)
    known = warp(np.frombuffer(costs, dtype=np.float64), logarithms=logarithms)
    return _Fit(np.frombuffer(rows).reshape(len(known), -1), known, columns).solve()


class _Fit:
    """The logarithm of how improbable a shape is."""

    def __init__(self, rows: Array, costs: Array, unordered: Flags) -> None:
        self._costs = costs
        self.columns = columns = rows.shape[1]
        apart = rows[:, None, :] - rows[None, :, :]
        each = np.where(unordered, apart != 0, apart * apart)
        self._each = np.ascontiguousarray(each.reshape(-1, columns).T)
        # The logarithm of a length is normal around sqrt(2) + ln(columns) / 2, with a deviation of
        # sqrt(3) (C. Hvarfner et al., 2024). A weight is -2 times that logarithm. The mode of that
        # length is less by 3 in its logarithm. With the median as the center, a few trials make the
        # model flat, and it asks for corners. The mode was better still on smooth functions, but
        # held up tables of trainings, where some parameters do not matter: so it is 2.
        # Values of a list keep the median, so that a trial of one says something of the others.
        center = -2 * (math.sqrt(2) + 0.5 * math.log(max(columns, 1)))
        lengths = np.where(unordered, center, center + _SHORTER)
        self._center = np.array([*lengths, _SCALE_PRIOR[0], _NOISE_PRIOR[0]])
        self._spread = np.array([_LENGTH_SPREAD] * columns + [_SCALE_PRIOR[1], _NOISE_PRIOR[1]])

    def solve(self) -> Shape:
        """The most probable shape."""
        bounds = [(-12.0, 10.0)] * self.columns + [(-5.0, 5.0), (math.log(_LEAST_NOISE), 1.0)]
        usual = self._center.copy()
        long = usual.copy()
        long[: self.columns] -= 4.0
        starts = (usual, long) if len(self._costs) <= 60 else (usual,)
        found = [
            minimize(
                self._value, start, jac=True, bounds=bounds, method="L-BFGS-B",
                options={"maxiter": _STEPS},
            )
            for start in starts
        ]  # fmt: skip
        best = min(found, key=lambda one: float(one.fun)).x
        return Shape(tuple(map(float, best[:-2])), float(best[-2]), float(best[-1]))

    def _value(self, point: Array) -> tuple[float, Array]:
        """The negative logarithm of the posterior, and its gradient."""
        count = len(self._costs)
        weights, scale, noise = np.exp(point[:-2]), math.exp(point[-2]), math.exp(point[-1])
        kernel, slope = matern_and_slope((weights @ self._each).reshape(count, count))
        covariance = scale * kernel
        covariance[np.diag_indices(count)] += noise + _LEAST_NOISE
        try:
            lower = cholesky(covariance, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            # Not positive definite: so large a value turns the search back.
            return 1e25, np.zeros_like(point)
        inverse = cho_solve((lower, True), np.eye(count), check_finite=False)
        factors = inverse @ self._costs
        pull = inverse - np.outer(factors, factors)
        gradient = np.empty_like(point)
        gradient[:-2] = 0.5 * scale * weights * (self._each @ (pull * slope).ravel())
        gradient[-2] = 0.5 * scale * float(np.sum(pull * kernel))
        gradient[-1] = 0.5 * noise * float(np.trace(pull))
        off = (point - self._center) / self._spread
        value = 0.5 * self._costs @ factors + np.log(np.diag(lower)).sum() + 0.5 * off @ off
        return float(value), gradient + off / self._spread
