"""``random``: values by chance, each trial from the study's seed and its own number."""

from __future__ import annotations

from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning.base import Problem, first_untried, luck_of


def suggest(problem: Problem) -> Parameters:
    """Values by chance. What was tried is not repeated while there is anything else."""
    luck = luck_of(problem)

    def draws() -> Parameters:
        return {parameter.name: parameter.sample(luck) for parameter in problem.space}

    return first_untried(problem, iter(draws, None))
