"""Several objectives made one, so that a Gaussian process can learn it: ParEGO (J. Knowles, 2006).

Each trial is chosen with weights of its own, so that together they find all of the Pareto front.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloud_ml.tuning.base import Outcome, Problem
from cloud_ml.tuning.numeric.axes import Array, chance_of
from cloud_ml.tuning.numeric.warping import warp

# Rho in the paper: it orders points that are equal in their worst objective.
_SHARE_OF_SUM = 0.05


def scalarise(problem: Problem) -> Problem:
    """The problem with one cost: the augmented Chebyshev distance from the best of each objective,
    weighted by chance. A problem of one objective stays as it is.
    """
    done = problem.of(Outcome.DONE)
    if not problem.several or not done:
        return problem
    costs = np.array([trial.costs for trial in done], dtype=np.float64)
    whole = np.column_stack([_unit(warp(column)) for column in costs.T])
    weights = chance_of(problem).dirichlet(np.ones(costs.shape[1]))
    weighted = whole * weights
    found = weighted.max(axis=1) + _SHARE_OF_SUM * weighted.sum(axis=1)
    known = iter(found)
    return replace(
        problem,
        trials=tuple(
            replace(trial, cost=float(next(known)), costs=())
            if trial.outcome is Outcome.DONE
            else trial
            for trial in problem.observations
        ),
    )


def _unit(costs: Array) -> Array:
    """The costs from 0 to 1."""
    low, high = float(costs.min()), float(costs.max())
    unit: Array = (costs - low) / (high - low) if high > low else np.zeros_like(costs)
    return unit
