"""``random``: values by chance, each trial from the study's seed and its own number."""

from __future__ import annotations

from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning.base import Problem, first_untried, points_by_chance


def suggest(problem: Problem) -> Parameters:
    """Values by chance. What was tried is not repeated while there is anything else."""
    return first_untried(problem, points_by_chance(problem))
