"""Pareto fronts and their hypervolumes. Pure; everywhere less is better."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from operator import le

Costs = tuple[float, ...]
"""What a trial costs by each objective."""

_MOST_MEASURED = {1: 100_000, 2: 100_000, 3: 1000, 4: 100}
"""The largest front whose volume is computed, by the number of objectives: more take seconds."""


def dominates(one: Costs, other: Costs) -> bool:
    """Whether ``one`` is nowhere worse than the other and somewhere better."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def front_of(costs: Sequence[Costs]) -> list[int]:
    """The numbers of those that no other one dominates, in their order."""
    kept = set(_front(tuple(sorted(set(costs)))))
    return [number for number, each in enumerate(costs) if each in kept]


@lru_cache(256)
def _front(ranked: tuple[Costs, ...]) -> tuple[Costs, ...]:
    """The front of costs that all differ, in their order: what dominates one comes before it."""
    kept: list[Costs] = []
    if ranked and len(ranked[0]) == 3:
        stairs: list[tuple[float, float]] = []
        return tuple(each for each in ranked if _joins(stairs, each[1], each[2]))
    for each in ranked:
        rest = each[1:]
        for other in kept[-1:] if len(rest) == 1 else kept:  # of two, the last has the least
            if all(map(le, other[1:], rest)):
                break
        else:
            kept.append(each)
    return tuple(kept)


def _joins(stairs: list[tuple[float, float]], first: float, second: float) -> bool:
    """Whether no step of a staircase dominates a point; then it joins them."""
    at = bisect_left(stairs, (first, second))
    if at < len(stairs) and stairs[at] == (first, second):
        return False
    if at and stairs[at - 1][1] <= second:
        return False
    end = at
    while end < len(stairs) and stairs[end][1] >= second:
        end += 1
    stairs[at:end] = [(first, second)]
    return True


def hypervolume(costs: Sequence[Costs], reference: Costs) -> float | None:
    """How much of the space between a front and a reference point is dominated, exactly; ``None``
    for a front of more than 1000 points of three objectives, or 100 of four.

    Points that are not better than the reference everywhere count for nothing.
    """
    inside = {each for each in costs if all(a < b for a, b in zip(each, reference, strict=True))}
    if len(inside) > _MOST_MEASURED.get(len(reference), 0):
        return None
    return _volume(tuple(sorted(inside)), reference)


@lru_cache(256)
def _volume(points: tuple[Costs, ...], reference: Costs) -> float:
    if not points:
        return 0.0
    if len(reference) == 1:
        return reference[0] - points[0][0]
    if len(reference) == 2:
        return _area(points, reference)
    if len(reference) == 3:
        return _volume_of_three(points, reference)
    return _slices(points, reference)


def _area(points: Sequence[Costs], reference: Costs) -> float:
    """Of two objectives: a staircase, from the least first cost on."""
    whole, below = 0.0, reference[1]
    for first, second in points:
        if second < below:
            whole += (reference[0] - first) * (below - second)
            below = second
    return whole


def _volume_of_three(points: Sequence[Costs], reference: Costs) -> float:
    """Of three: the area of what was met so far, from one third cost to the next."""
    ranked = sorted(points, key=lambda each: each[2])
    stairs: list[tuple[float, float]] = []
    area = whole = 0.0
    for number, (first, second, third) in enumerate(ranked):
        area += _add_volume(stairs, first, second, reference)
        above = ranked[number + 1][2] if number + 1 < len(ranked) else reference[2]
        whole += area * (above - third)
    return whole


def _add_volume(
    stairs: list[tuple[float, float]], first: float, second: float, reference: Costs
) -> float:
    """The area that a point adds to a staircase, which it joins."""
    at = bisect_left(stairs, (first, second))
    if at and stairs[at - 1][1] <= second:
        return 0.0
    height = stairs[at - 1][1] if at else reference[1]
    added, left, end = 0.0, first, at
    while end < len(stairs) and stairs[end][1] >= second:
        added += (stairs[end][0] - left) * (height - second)
        left, height = stairs[end]
        end += 1
    right = stairs[end][0] if end < len(stairs) else reference[0]
    added += (right - left) * (height - second)
    stairs[at:end] = [(first, second)]
    return added


def _slices(points: Sequence[Costs], reference: Costs) -> float:
    """Of four: the volume of three of what was met so far, from one last cost to the next."""
    ranked = sorted(points, key=lambda each: each[-1])
    whole = 0.0
    for number, point in enumerate(ranked):
        above = ranked[number + 1][-1] if number + 1 < len(ranked) else reference[-1]
        if above > point[-1]:
            met = [each[:-1] for each in ranked[: number + 1]]
            whole += _volume_of_three(met, reference[:-1]) * (above - point[-1])
    return whole
