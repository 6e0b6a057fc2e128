"""``cma-es``: the evolution strategy that learns a covariance, by the package ``cmaes`` (N. Hansen,
2016; of mixed spaces R. Hamano et al., CatCMA with margin, 2025).

A generation is so many trials in the order of their numbers. All generations that have ended are
told again for each suggestion, so nothing has to be kept between two of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning import qmc
from cloud_ml.tuning.base import Observation, Outcome, Problem, first_untried
from cloud_ml.tuning.numeric.axes import Array, Axes, Numbers, chance_of

if TYPE_CHECKING:
    from cmaes import CatCMAwM
else:
    # cmaes imports scipy.stats where it can: half a second and 26 MB for two functions that it also
    # has itself.
    _IS_HIDDEN = "scipy.stats" not in sys.modules
    if _IS_HIDDEN:
        sys.modules["scipy.stats"] = None
    try:
        from cmaes import CatCMAwM
    finally:
        if _IS_HIDDEN:
            del sys.modules["scipy.stats"]

_MOST_STEPS = 50
"""A parameter of more values is taken for a continuous one."""
_MOST_SAMPLES = 200


def suggest(problem: Problem) -> Parameters:
    """A sample of the distribution after the generations that have ended."""
    try:
        return first_untried(problem, _Evolution(problem).samples())
    except (np.linalg.LinAlgError, AssertionError, FloatingPointError):
        return qmc.suggest(problem)  # a distribution that has shrunk to nothing, or grown beyond


class _Evolution:
    """The distribution, and what it knows of the columns of a space."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._axes = axes = Axes(problem.space)
        steps = (axes.sizes > 0) & (axes.sizes <= _MOST_STEPS) & ~axes.unordered
        self._smooth = np.flatnonzero(~steps & ~axes.unordered)
        self._steps = np.flatnonzero(steps)
        self._names = np.flatnonzero(axes.unordered)
        ignored = Outcome.IGNORED
        known = [{} if one.outcome is ignored else one.parameters for one in problem.trials]
        self._rows = np.nan_to_num(axes.rows_of(known), nan=0.5)

    def samples(self) -> Iterator[Parameters]:
        """Samples for this trial."""
        found = self._replay_generations()
        found.reseed_rng(int(chance_of(self._problem).integers(2**32)))
        for _ in range(_MOST_SAMPLES):
            yield self._axes.parameters(self._row_of(found.ask()))

    def _replay_generations(self) -> CatCMAwM:
        """The distribution after all generations that have ended."""
        found = self._new_distribution(0)
        size, trials = found.population_size, self._problem.trials
        for first in range(0, len(trials) - size + 1, size):
            generation = trials[first : first + size]
            ranks = _ranks(generation)
            if ranks is None:
                continue
            rows = self._rows[first : first + size]
            found.tell([(self._solution(row), rank) for row, rank in zip(rows, ranks, strict=True)])
            if len(self._smooth) + len(self._steps) and found.should_stop():
                found = self._new_distribution(first + size)
        return found

    def _new_distribution(self, number: int) -> CatCMAwM:
        """A distribution as wide as the space; one that follows another begins somewhere else."""
        sizes = self._axes.sizes
        smooth = [[0.0, 1.0]] * len(self._smooth) or None
        steps = [list((np.arange(sizes[at]) + 0.5) / sizes[at]) for at in self._steps] or None
        names = [int(sizes[at]) for at in self._names] or None
        mean = None
        if number and (count := len(self._smooth) + len(self._steps)):
            mean = np.random.default_rng([self._problem.seed, number]).random(count)
        return CatCMAwM(x_space=smooth, z_space=steps, c_space=names, mean=mean, seed=0)

    def _solution(self, row: Array) -> Any:
        """A row, as the package has it: values and names, and all values once more."""
        smooth, steps, names = None, None, None
        if len(self._smooth):
            smooth = row[self._smooth]
        if len(self._steps):
            steps = row[self._steps]
        if len(self._names):
            names = self._one_hot(row[self._names].astype(np.int64))
        values = row[[*self._smooth, *self._steps]]
        return CatCMAwM.Solution(smooth, steps, names, values if len(values) else None)

    def _one_hot(self, numbers: Numbers) -> Any:
        found = np.zeros((len(numbers), int(self._axes.sizes[self._names].max())), dtype=bool)
        found[np.arange(len(numbers)), numbers] = True
        return found

    def _row_of(self, sample: Any) -> Array:
        row = np.empty(len(self._axes.sizes))
        for columns, values in ((self._smooth, sample.x), (self._steps, sample.z)):
            if len(columns):
                row[columns] = values
        if len(self._names):
            row[self._names] = np.argmax(sample.c, axis=1)
        snapped: Array = self._axes.snap(row[None, :])[0]
        return snapped


def _ranks(generation: Sequence[Observation]) -> Sequence[float] | None:
    """The places of trials, from the best; those without a value come last. ``None`` of a
    generation that has not ended, or that says nothing.
    """
    costs = {trial.cost for trial in generation}
    if len(costs) < 2 or any(trial.outcome is Outcome.RUNNING for trial in generation):
        return None
    known = [math.inf if trial.cost is None else trial.cost for trial in generation]
    order = sorted(range(len(known)), key=known.__getitem__)
    return [float(order.index(number)) for number in range(len(known))]
