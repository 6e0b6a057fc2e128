"""How much each parameter matters, by two measures of one forest of regression trees.

The functional analysis of variance (F. Hutter et al., 2014): the share of the costs' variance over
the whole space that one parameter alone explains. It is exact for a tree, as its leaves are boxes.
Permutation importance (L. Breiman, 2001): how much worse a tree predicts the trials that it has not
seen once the values of one parameter are shuffled among them, as a share of their variance.

A parameter that some trials lack is judged among those that have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cloud_ml.domain.studies.space import Parameter
from cloud_ml.tuning.base import Observation, Outcome, Problem
from cloud_ml.tuning.numeric.axes import Array, Numbers, chance_of
from cloud_ml.tuning.numeric.forest import Box, Columns, Tree, grow_forest

TREES = 32
_MOST_TRIALS = 500
_SHUFFLES = 2
_PERCENTILES = (5, 95)
_FAR = 3.0
_LEAST_VARIANCE = 1e-300


def importance(problem: Problem, trees: int = TREES) -> dict[str, Any]:
    """The importance of each parameter, in the order of the space, with the range of nine tenths of
    the trees; ``explained``, the share of the variance that the forest predicts of trials that it
    has not seen; and how many trials that was learned from.
    """
    done = problem.of(Outcome.DONE)[-_MOST_TRIALS:]
    costs = _without_extremes(np.array([trial.cost for trial in done], dtype=np.float64))
    rows, columns, missing = _table(problem.space, done)
    space = range(len(problem.space))
    luck = chance_of(problem)
    shares, drops = np.zeros((trees, len(space))), np.zeros((trees, len(space)))
    votes, counts = np.zeros(len(done)), np.zeros(len(done))
    for number, tree in enumerate(grow_forest(rows, costs, columns, luck, trees)):
        shares[number] = _shares(tree, columns, missing)
        unseen = tree.unseen
        if len(unseen):
            votes[unseen] += tree.predict(rows[unseen])
            counts[unseen] += 1
            drops[number] = _drops(tree, rows[unseen], costs[unseen], columns, luck)
    drops /= max(float(costs.var()), _LEAST_VARIANCE)
    return {
        "trials": len(done),
        "explained": _explained_share(costs, votes, counts),
        "fanova": [_summary(shares[:, column]) for column in space],
        "permutation": [_summary(drops[:, column]) for column in space],
    }


def _summary(found: Array) -> list[float]:
    """The mean over all trees, and the range of most, in which the mean lies: after few trials one
    tree may have it beyond all the others.
    """
    mean = float(found.mean())
    low, high = np.percentile(found, _PERCENTILES)
    return [mean, min(float(low), mean), max(float(high), mean)]


def _without_extremes(costs: Array) -> Array:
    """Costs beyond three interquartile ranges are moved there: else one that diverged would be all
    the variance (J. Tukey, 1977).
    """
    costs = costs / (float(np.abs(costs).max()) or 1.0)  # far from the end of numbers
    first, third = np.percentile(costs, (25, 75))
    reach = _FAR * (third - first)
    if reach > 0:
        costs = np.clip(costs, first - reach, third + reach)
    shifted = costs - float(np.median(costs))
    spread = float(np.abs(shifted).max())
    found: Array = shifted / spread if spread > 0 else shifted
    return found


def _table(space: Sequence[Parameter], done: Sequence[Observation]) -> tuple[Array, Columns, Array]:
    """Rows, their columns, and the share of trials that lack a parameter, relative to the others.

    Such a trial has a place of its own: below 0, or a value beyond those of a list.
    """
    rows = np.empty((len(done), len(space)))
    low, sizes, missing = np.zeros(len(space)), np.zeros(len(space), int), np.zeros(len(space))
    for column, one in enumerate(space):
        given = [trial.parameters.get(one.name) is not None for trial in done]
        missing[column] = (len(done) - sum(given)) / max(sum(given), 1)
        ordered = one.ordered
        low[column] = -missing[column]
        sizes[column] = 0 if ordered else one.size + 1
        absent = -missing[column] / 2 if ordered else one.size
        for row, trial in enumerate(done):
            if not given[row]:
                rows[row, column] = absent
                continue
            share = one.share_of(trial.parameters[one.name])
            rows[row, column] = share if ordered else round(share * one.size - 0.5)
    return rows, Columns(low, sizes), missing


def _shares(tree: Tree, columns: Columns, missing: Array) -> Array:
    """The share of the variance of a tree's costs that each parameter alone explains."""
    costs = np.array(tree.costs)
    sizes = np.column_stack(
        [_sizes(tree.boxes, columns, missing, column) for column in range(len(missing))]
    )
    volumes = sizes.prod(axis=1)
    costs = costs - float(volumes @ costs)
    variance = float(volumes @ costs**2)
    if variance <= _LEAST_VARIANCE:
        return np.zeros(len(missing))
    found = np.empty(len(missing))
    for column in range(len(missing)):
        with np.errstate(divide="ignore", invalid="ignore"):
            others = np.where(sizes[:, column] > 0, volumes / sizes[:, column], 0.0)
        widths, means = _marginal(tree.boxes, columns, missing, column, costs * others)
        middle = float(widths @ means) / float(widths.sum())
        found[column] = float(widths @ (means - middle) ** 2) / variance
    return found


def _sizes(boxes: Sequence[Box], columns: Columns, missing: Array, column: int) -> Array:
    """How much of a column each box has: all of it is 1."""
    if not columns.sizes[column]:
        widths = np.array([box.high[column] - box.low[column] for box in boxes])
        part: Array = widths / (1 + missing[column])
        return part
    weights = _weights(columns, missing, column)
    return np.array([float(weights[box.values[column]].sum()) for box in boxes])


def _weights(columns: Columns, missing: Array, column: int) -> Array:
    """The weights of the values of a list; the last stands for none."""
    size = int(columns.sizes[column]) - 1
    found: Array = np.append(np.full(size, 1 / size), missing[column]) / (1 + missing[column])
    return found


def _marginal(
    boxes: Sequence[Box], columns: Columns, missing: Array, column: int, parts: Array
) -> tuple[Array, Array]:
    """The mean cost over all other columns, at the cells of this one where trials have a value;
    with the sizes of the cells.
    """
    if columns.sizes[column]:
        masks = np.array([box.values[column] for box in boxes])
        return _weights(columns, missing, column)[:-1], (parts @ masks)[:-1]
    lows = np.array([box.low[column] for box in boxes])
    highs = np.array([box.high[column] for box in boxes])
    edges = np.unique(np.concatenate([lows, highs, [0.0]]))
    # Each box adds its part from its low edge to its high one: the sums of such steps are what all
    # boxes give between two edges.
    change = np.zeros(len(edges))
    np.add.at(change, np.searchsorted(edges, lows), parts)
    np.add.at(change, np.searchsorted(edges, highs), -parts)
    widths, means = np.diff(edges) / (1 + missing[column]), np.cumsum(change)[:-1]
    there = edges[:-1] >= 0
    return widths[there], means[there]


def _drops(
    tree: Tree, rows: Array, costs: Array, columns: Columns, luck: np.random.Generator
) -> Array:
    """How much the squared error grows when a column is shuffled among the trials that have it."""
    error = float(((costs - tree.predict(rows)) ** 2).mean())
    used = set(tree.column)
    found = np.zeros(len(columns.sizes))
    for column in range(len(found)):
        there = _present(rows, columns, column)
        if column not in used or len(there) < 2:
            continue
        errors = []
        for _ in range(_SHUFFLES):
            shuffled = rows.copy()
            shuffled[there, column] = luck.permutation(rows[there, column])
            errors.append(float(((costs - tree.predict(shuffled)) ** 2).mean()))
        found[column] = float(np.mean(errors)) - error
    return found


def _present(rows: Array, columns: Columns, column: int) -> Numbers:
    """The rows that have a value: see ``_table``."""
    at, size = rows[:, column], columns.sizes[column]
    return np.flatnonzero(at < size - 1 if size else at >= 0)


def _explained_share(costs: Array, votes: Array, counts: Array) -> float:
    """The share of the variance that the forest predicts, of trials that a tree has not seen."""
    known = counts > 0
    if known.sum() < 2 or float(costs[known].var()) <= _LEAST_VARIANCE:
        return 0.0
    off = costs[known] - votes[known] / counts[known]
    return max(0.0, 1 - float((off**2).mean()) / float(costs[known].var()))
