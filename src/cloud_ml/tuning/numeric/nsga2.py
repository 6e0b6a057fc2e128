"""``nsga2``: evolution of the best trials (K. Deb et al., 2002), from the whole history.

The parents are the best third of all trials that are done, from 10 to 50: by their rank of non-domination, then by
how lonely they are on it. A child is crossed from two of them and mutated. So there are no
generations to wait for, and the history alone says what comes next.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cloud_ml.domain.studies.values import Parameters
from cloud_ml.tuning import qmc
from cloud_ml.tuning.base import Observation, Outcome, Problem, first_untried
from cloud_ml.tuning.numeric.axes import Array, Axes, Flags, Numbers, chance_of

_LEAST_PARENTS, _MOST_PARENTS, _SHARE = 10, 50, 3
_MOST_TRIALS = 1000
_CROSSED, _SWAPPED = 0.9, 0.5
_SPREAD_OF_CROSSING, _SPREAD_OF_MUTATION = 5.0, 5.0  # wide, as trials are few


def suggest(problem: Problem) -> Parameters:
    """A child of good trials."""
    done = problem.of(Outcome.DONE)[-_MOST_TRIALS:]
    axes, luck = Axes(problem.space), chance_of(problem)
    if len(done) < 2 or not len(axes.sizes):
        return qmc.suggest(problem)
    count = min(max(len(done) // _SHARE, _LEAST_PARENTS), _MOST_PARENTS)
    parents = best_first(costs_of(done))[:count]
    rows = axes.rows([done[number] for number in parents])

    def children() -> Iterator[Parameters]:
        while True:
            yield axes.parameters(_child(rows, axes, luck))

    return first_untried(problem, children())


def costs_of(done: list[Observation]) -> Array:
    """The costs of trials, a row for each."""
    return np.array([one.costs or (one.cost,) for one in done], dtype=np.float64)


def best_first(costs: Array) -> Numbers:
    """The numbers of trials: those of the first front, then of the next; on each the lonely first."""
    ranks = _ranks(costs)
    lonely = np.zeros(len(costs))
    for rank in range(int(ranks.max()) + 1):
        inside = np.flatnonzero(ranks == rank)
        lonely[inside] = _distances(costs[inside])
    return np.lexsort((-lonely, ranks))


def first_front(costs: Array) -> Numbers:
    """The numbers of the trials that no other one dominates, each cost once: the lonely first."""
    _, first = np.unique(costs, axis=0, return_index=True)
    front = np.sort(first)
    front = front[_ranks(costs[front]) == 0]
    lonely_first: Numbers = front[np.argsort(-_distances(costs[front]), kind="stable")]
    return lonely_first


def _ranks(costs: Array) -> Numbers:
    """How often the front has to be taken away until a trial is on it."""
    below: Flags = np.all(costs[:, None, :] <= costs[None, :, :], axis=2)
    dominates = below & ~below.T
    by = dominates.sum(axis=0)
    ranks = np.full(len(costs), -1, dtype=np.int64)
    rank = 0
    while (front := np.flatnonzero((by == 0) & (ranks < 0))).size:
        ranks[front] = rank
        by = by - dominates[front].sum(axis=0)
        rank += 1
    return ranks


def _distances(costs: Array) -> Array:
    """How far the neighbours of each trial are on its front; at the ends endlessly far."""
    count = len(costs)
    found = np.zeros(count)
    for column in costs.T:
        order = np.argsort(column, kind="stable")
        at = column[order] / 2  # of halves, as the distance of two numbers may be infinite
        reach = float(at[-1] - at[0])
        found[order[[0, -1]]] = np.inf
        if reach > 0 and count > 2:
            found[order[1:-1]] += (at[2:] - at[:-2]) / reach
    return found


def _child(rows: Array, axes: Axes, luck: np.random.Generator) -> Array:
    """Two winners of tournaments are crossed, and the child is mutated."""
    first, second = (rows[luck.integers(0, len(rows), 2).min()] for _ in range(2))
    columns = len(first)
    child = first.copy()
    if luck.random() < _CROSSED:
        swapped = luck.random(columns) < _SWAPPED
        mixed = np.where(axes.unordered, second, _cross_over(first, second, luck))
        mixed = np.where(np.isnan(first), second, np.where(np.isnan(second), first, mixed))
        child = np.where(swapped, mixed, first)
    mutated = luck.random(columns) < 1 / columns
    if not mutated.any():
        mutated[luck.integers(columns)] = True  # else it would be a parent again
    anywhere = axes.draw(1, luck)[0]
    moved = np.where(axes.unordered, anywhere, _mutate(child, axes, luck))
    snapped = axes.snap(np.where(mutated, moved, child)[None, :])
    found: Array = axes.settle(snapped, luck)[0]  # what is active may have changed
    return found


def _cross_over(first: Array, second: Array, luck: np.random.Generator) -> Array:
    """Simulated binary crossover: mostly near one of the parents."""
    share = luck.random(len(first))
    power = 1 / (_SPREAD_OF_CROSSING + 1)
    factor = np.where(share <= 0.5, (2 * share) ** power, (1 / (2 - 2 * share)) ** power)
    side = np.where(luck.random(len(first)) < 0.5, 1.0, -1.0)
    found: Array = np.clip(0.5 * (first + second + side * factor * (first - second)), 0, 1)
    return found


def _mutate(row: Array, axes: Axes, luck: np.random.Generator) -> Array:
    """Polynomial mutation; of few values at least to the next one."""
    share = luck.random(len(row))
    power = 1 / (_SPREAD_OF_MUTATION + 1)
    step = np.where(share < 0.5, (2 * share) ** power - 1, 1 - (2 - 2 * share) ** power)
    least = np.where(axes.sizes > 0, 1 / np.maximum(axes.sizes, 1), 0.0)
    step = np.where(np.abs(step) < least, np.copysign(least, step), step)
    found: Array = np.clip(row + step, 0, 1)
    return found
