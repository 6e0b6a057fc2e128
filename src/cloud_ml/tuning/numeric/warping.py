"""Costs, bent until they look normal: a Gaussian process understands those better.

Of three forms, as they are, their logarithms, and the transform by I. Yeo and R. Johnson
(Biometrika 87, 2000), the most likely one is taken.
"""

from __future__ import annotations

import numpy as np

from cloud_ml.tuning.numeric.axes import Array

_POWERS = np.arange(-3.0, 3.01, 0.25)
_LEAST_SPREAD = 1e-12
_LARGEST = 1e100
"""Its square, and a sum of many such squares, is a number, too."""
_BOUND = 1e300
"""The sum of all costs is a number, too."""


def warp(costs: Array, *, logarithms: bool = True) -> Array:
    """The costs in the same order, with mean 0 and deviation 1. Without ``logarithms`` of the costs
    themselves, 1e-9 and 1e-16 stay as near to each other as they are.
    """
    clipped = _clip(np.clip(costs, -_BOUND, _BOUND))
    unit = max(1.0, float(np.abs(clipped).max()) / _LARGEST)
    clipped = clipped / unit
    forms, jacobians = _yeo_johnson(_standard(clipped))
    if logarithms and costs.min() > 0 and costs.max() > costs.min() * (1 + 1e-9):
        logs = np.log(costs)
        forms = np.vstack([forms, logs])
        # The other forms begin with a standard, and the logarithm does not.
        spread = np.log(max(float(clipped.std()), _LEAST_SPREAD)) + np.log(unit)
        jacobians = np.append(jacobians, len(costs) * float(spread) - float(logs.sum()))
    return _standard(forms[np.argmax(_likelihoods(forms, jacobians))])


def _clip(costs: Array) -> Array:
    """Without the extreme: some cost of 1e300 would make all others equal."""
    low, middle = float(np.min(costs)), float(np.median(costs))
    reach = max(middle - low, _LEAST_SPREAD * max(1.0, abs(middle)))
    return np.minimum(costs, middle + 1e6 * reach)


def _standard(values: Array) -> Array:
    values = values - values.mean()
    spread = float(values.std())
    unit: Array = values / spread if spread > _LEAST_SPREAD else np.zeros_like(values)
    return unit


def _yeo_johnson(values: Array) -> tuple[Array, Array]:
    """The transformed values for each power, and the logarithms of the Jacobians."""
    logs = np.log1p(np.abs(values))
    up = values >= 0
    signed = np.where(up, logs, -logs)
    power = np.where(up, _POWERS[:, None], 2 - _POWERS[:, None])
    with np.errstate(all="ignore"):
        bent = np.where(power == 0, logs, np.expm1(power * logs) / power)
    return np.where(up, bent, -bent), (_POWERS - 1) * float(signed.sum())


def _likelihoods(forms: Array, jacobians: Array) -> Array:
    with np.errstate(all="ignore"):
        spread = forms.std(axis=1)
        # The logarithm of the likelihood of a normal distribution, but for a constant.
        found = jacobians - forms.shape[1] * np.log(np.maximum(spread, _LEAST_SPREAD))
    fine = np.isfinite(forms).all(axis=1) & (spread >= _LEAST_SPREAD)
    likely: Array = np.where(fine, found, -np.inf)
    return likely
