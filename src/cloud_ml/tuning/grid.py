"""``grid``: every combination of values, the last parameter changing fastest."""

from __future__ import annotations

from cloud_ml.domain.studies.combinations import grid_point
from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning.base import Problem, first_left


def suggest(problem: Problem) -> Parameters:
    """The next combination, after the trials that the user named. In a space that has changed, the
    next one that was not tried.
    """
    if not problem.changed:
        number = problem.number - problem.named
        return grid_point(problem.space, number, problem.constraints)
    left = first_left(problem)
    return grid_point(problem.space, 0, problem.constraints) if left is None else left
