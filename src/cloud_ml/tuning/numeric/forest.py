"""A forest of regression trees: each is grown on trials drawn with replacement (L. Breiman, 2001)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from cloud_ml.tuning.numeric.axes import Array, Flags, Numbers

_LEAST_GAIN = 1e-12
_MOST_LEAVES = 64
"""Of many trials, smaller parts of them than this are noise, and would take seconds."""


@dataclass(frozen=True)
class Columns:
    """What is known of the columns of the rows.

    Attributes:
        low: The least value of each ordered column; the largest is 1.
        sizes: How many values an unordered column has; 0 for an ordered one.
    """

    low: Array
    sizes: Numbers

    @property
    def unordered(self) -> Flags:
        """The columns whose values only differ or not."""
        found: Flags = self.sizes > 0
        return found


@dataclass(frozen=True)
class Box:
    """A part of the space: ranges of ordered columns, and values of unordered ones by column."""

    low: Array
    high: Array
    values: dict[int, Flags]


@dataclass
class Tree:
    """A tree. Node 0 is the root; a leaf has the column -1.

    Attributes:
        boxes: The part of the space that each leaf has.
        costs: What a trial there costs.
        unseen: The numbers of the trials that it was not grown on.
    """

    unseen: Numbers
    boxes: list[Box] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    chosen: list[Flags | None] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def predict(self, rows: Array) -> Array:
        """What trials of these rows cost."""
        found = np.empty(len(rows))
        waiting = [(0, np.arange(len(rows)))]
        while waiting:
            node, inside = waiting.pop()
            if not len(inside):
                continue
            if self.column[node] < 0:
                found[inside] = self.value[node]
                continue
            goes = self._goes_left(node, rows[inside, self.column[node]])
            waiting += [(self.left[node], inside[goes]), (self.right[node], inside[~goes])]
        return found

    def _goes_left(self, node: int, at: Array) -> Flags:
        chosen = self.chosen[node]
        found: Flags = at <= self.threshold[node] if chosen is None else chosen[at.astype(int)]
        return found


def grow_forest(
    rows: Array, costs: Array, columns: Columns, luck: np.random.Generator, trees: int
) -> Iterator[Tree]:
    """So many trees."""
    for _ in range(trees):
        drawn = luck.integers(0, len(rows), len(rows))
        unseen = np.setdiff1d(np.arange(len(rows)), drawn)
        yield _grow(rows[drawn], costs[drawn], columns, Tree(unseen))


def _grow(rows: Array, costs: Array, columns: Columns, tree: Tree) -> Tree:
    values = {
        int(column): np.ones(columns.sizes[column], dtype=bool)
        for column in np.flatnonzero(columns.unordered)
    }
    whole = Box(columns.low.copy(), np.ones(len(columns.low)), values)
    least = max(2, len(rows) // _MOST_LEAVES)
    waiting: list[tuple[Numbers, Box, int]] = [(np.arange(len(rows)), whole, -1)]
    while waiting:
        inside, box, parent = waiting.pop()
        node = _add_node(tree, parent)
        tree.value[node] = float(costs[inside].mean())
        split = _best_split(rows[inside], costs[inside], columns, least)
        if split is None:
            tree.boxes.append(box)
            tree.costs.append(tree.value[node])
            continue
        column, threshold, chosen = split
        tree.column[node], tree.threshold[node], tree.chosen[node] = split
        at = rows[inside, column]
        goes = at <= threshold if chosen is None else chosen[at.astype(int)]
        for part, side in zip((inside[~goes], inside[goes]), _halves(box, split), strict=True):
            waiting.append((part, side, node))
    return tree


def _add_node(tree: Tree, parent: int) -> int:
    """A new node. The left child of a parent comes first, as it was put on the stack last."""
    node = len(tree.column)
    tree.column.append(-1)
    tree.threshold.append(0.0)
    tree.chosen.append(None)
    tree.left.append(-1)
    tree.right.append(-1)
    tree.value.append(0.0)
    if parent >= 0 and tree.left[parent] < 0:
        tree.left[parent] = node
    elif parent >= 0:
        tree.right[parent] = node
    return node


_Split = tuple[int, float, "Flags | None"]


def _halves(box: Box, split: _Split) -> Sequence[Box]:
    """The right part of a box, then the left one."""
    column, threshold, chosen = split
    if chosen is not None:
        inside = box.values[column]
        return [
            Box(box.low, box.high, box.values | {column: inside & side})
            for side in (~chosen, chosen)
        ]
    low, high = box.low.copy(), box.high.copy()
    low[column] = high[column] = threshold
    return [Box(low, box.high, box.values), Box(box.low, high, box.values)]


def _best_split(rows: Array, costs: Array, columns: Columns, least: int) -> _Split | None:
    """The split after which the costs of both sides differ least; ``None`` if none helps, or of
    fewer trials than ``least``.
    """
    count = len(costs)
    spread = float(((costs - costs.mean()) ** 2).sum())
    if count < least or spread <= _LEAST_GAIN * max(1.0, float(np.abs(costs).max()) ** 2):
        return None
    ranked = rows.copy()
    # For squared errors the best division of a list is one of this order (W. Fisher, 1958).
    for column in np.flatnonzero(columns.unordered):  # in the order of their mean cost
        ranked[:, column] = _means(rows[:, column], costs, int(columns.sizes[column]))[
            rows[:, column].astype(int)
        ]
    order = np.argsort(ranked, axis=0, kind="stable")
    at = np.take_along_axis(ranked, order, axis=0)
    sums = np.cumsum(costs[order], axis=0)[:-1]
    left = np.arange(1, count)[:, None]
    # The sum of all squares is the same for each division: where this is largest, the spread within
    # both sides is least.
    gain = sums**2 / left + (costs.sum() - sums) ** 2 / (count - left)
    # No threshold divides equal values.
    gain[at[:-1] >= at[1:]] = -np.inf
    best = int(np.argmax(gain))
    place, column = divmod(best, ranked.shape[1])
    if not np.isfinite(gain[place, column]):
        return None
    below, above = float(at[place, column]), float(at[place + 1, column])
    if not columns.unordered[column]:
        # Trials without the parameter are below 0 (`importance`): no value goes with them. Rounding
        # must not make the threshold as large as `above`, which would then be on its left.
        middle = 0.0 if below < 0 <= above else (below + above) / 2
        return column, min(max(middle, below), np.nextafter(above, below)), None
    means = _means(rows[:, column], costs, int(columns.sizes[column]))
    chosen = means <= below
    if place + 1 >= count / 2:  # values that no trial has go with the larger side
        chosen |= np.isnan(means)
    return column, 0.0, chosen


def _means(at: Array, costs: Array, size: int) -> Array:
    """The mean cost of each value of an unordered column; NaN of one that no trial has."""
    codes = at.astype(int)
    counts = np.bincount(codes, minlength=size)
    sums = np.bincount(codes, weights=costs, minlength=size)
    with np.errstate(invalid="ignore"):
        found: Array = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return found
