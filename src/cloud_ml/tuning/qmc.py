"""``qmc``: the points of a scrambled Sobol sequence, which cover the space evenly."""

from __future__ import annotations

from collections.abc import Iterator

from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning.base import Problem, first_untried, points_by_chance
from cloud_ml.tuning.sobol import sobol_point


def suggest(problem: Problem) -> Parameters:
    """The point of the trial's number; by chance near it where that was tried."""
    return first_untried(problem, _points(problem))


def _points(problem: Problem) -> Iterator[Parameters]:
    point = sobol_point(problem.number, max(1, len(problem.space)), problem.seed)
    yield {one.name: one.at(share) for one, share in zip(problem.space, point, strict=False)}
    yield from points_by_chance(problem, "/qmc")
