"""How far searches are from the best value, and how sure a difference of two algorithms is.

The regret of a search is the distance of its best trial from the best value that there is, in shares
of the mean distance that chance leaves after as many trials: 1 is no better than chance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuning.problems import Problem
from tuning.searches import Runs

Array = NDArray[np.float64]
_DRAWS, _SHARES = 2000, (2.5, 97.5)
_LEAST = 1e-9


def distances(runs: Runs, problem: Problem, trials: int) -> Array:
    """For each seed how far the best of so many trials is from the best value."""
    return np.array([min(one.costs[:trials]) - problem.best for one in runs[problem.name]])


def regrets(runs: Runs, chance: Runs, problem: Problem, trials: int) -> Array:
    """The regret of each seed."""
    scale = max(float(distances(chance, problem, trials).mean()), _LEAST)
    found: Array = distances(runs, problem, trials) / scale
    return found


def mean_regret(runs: Runs, chance: Runs, problems: Sequence[Problem], trials: int) -> float:
    """The mean of these problems, each counting as much as another."""
    return float(np.mean([regrets(runs, chance, one, trials).mean() for one in problems]))


def difference_interval(
    runs: Runs, others: Runs, chance: Runs, problems: Sequence[Problem], trials: int
) -> tuple[float, float]:
    """Between what the mean regret less that of the others lies, in 95 of 100 cases: the bootstrap
    draws the seeds of each problem anew.
    """
    luck, whole = np.random.default_rng(0), np.zeros(_DRAWS)
    for problem in problems:
        for sign, some in ((1, runs), (-1, others)):
            known = regrets(some, chance, problem, trials)
            drawn = luck.integers(0, len(known), (_DRAWS, len(known)))
            whole += sign * known[drawn].mean(axis=1) / len(problems)
    low, high = np.percentile(whole, _SHARES)
    return float(low), float(high)


def trials_to_reach(runs: Runs, problem: Problem, distance: float) -> int | None:
    """How many trials it takes until the mean distance of all seeds is no more; ``None`` if it stays
    above.
    """
    each = np.array([one.costs for one in runs[problem.name]]) - problem.best
    mean = np.minimum.accumulate(each, axis=1).mean(axis=0)
    reached = np.flatnonzero(mean <= distance)
    return int(reached[0]) + 1 if len(reached) else None
