"""The space that no point of a Pareto front dominates, cut into boxes. Everywhere less is better."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import le

import numpy as np

from cloud_ml.tuning.numeric.axes import Array, Numbers

_Box = tuple[float, ...]
"""The lower and the upper end by each objective, one after the other."""
_ENDLESS = -np.inf


@dataclass(frozen=True)
class Sides:
    """The sides that boxes have along one objective.

    Attributes:
        edges: The numbers where sides begin and end; the first one is minus infinity.
        lower: For each different side the number of the edge where it begins.
        upper: The number of the edge where it ends.
        of_box: For each box the number of its side.
    """

    edges: Array
    lower: Numbers
    upper: Numbers
    of_box: Numbers


def sides_of(front: Array, reference: Array) -> list[Sides]:
    """For each objective the sides of boxes that do not overlap. Together they are all points below
    the reference that no point of the front dominates.

    Args:
        front: Costs of which none dominates another, all of them below the reference: a row each.
        reference: The worst cost that counts, by each objective.
    """
    boxes = np.array(list(_boxes([*map(tuple, front.tolist())], reference.tolist())))
    found = []
    for low, high in zip(boxes[:, ::2].T, boxes[:, 1::2].T, strict=True):
        edges, ends = np.unique(np.concatenate([[_ENDLESS], low, high]), return_inverse=True)
        pairs, of_box = np.unique(ends[1:].reshape(2, -1), axis=1, return_inverse=True)
        found.append(Sides(edges, pairs[0], pairs[1], of_box.ravel()))
    return found


def _boxes(front: list[tuple[float, ...]], reference: Sequence[float]) -> Iterator[_Box]:
    """Sweeps along the last objective: between two points, what is dominated stays the same. A box
    of the other objectives lasts until a point changes it.
    """
    last = reference[-1]
    if len(reference) == 1:
        yield _ENDLESS, min((point[0] for point in front), default=last)
        return
    begun: dict[_Box, float] = dict.fromkeys(_boxes([], reference[:-1]), _ENDLESS)
    partial_front: list[tuple[float, ...]] = []
    for point in sorted(front, key=lambda one: one[-1]):
        partial_front = _front_with(partial_front, point[:-1])
        now = set(_boxes(partial_front, reference[:-1]))
        for box in [box for box in begun if box not in now]:
            yield from _closed(box, begun.pop(box), point[-1])
        for box in sorted(now.difference(begun)):
            begun[box] = point[-1]
    for box, since in begun.items():
        yield from _closed(box, since, last)


def _closed(box: _Box, low: float, high: float) -> Iterator[_Box]:
    if low < high:
        yield (*box, low, high)


def _front_with(
    front: list[tuple[float, ...]], point: tuple[float, ...]
) -> list[tuple[float, ...]]:
    """A front in its order, with one more point."""
    if any(_is_no_worse(one, point) for one in front):
        return front
    kept = [one for one in front if not _is_no_worse(point, one)]
    insort(kept, point)
    return kept


def _is_no_worse(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(map(le, one, other))
