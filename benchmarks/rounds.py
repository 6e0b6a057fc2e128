"""What rounds in pairs tell: the median of their ratios, and how sure it is. Other work on the
machine slows both sides of a round, and hardly their ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from harness import Figure, median

_DOUBT = 0.025


def in_pairs(
    ours: Callable[[], float], by_hand: Callable[[], float], rounds: int, warm_ups: int = 1
) -> list[tuple[float, float]]:
    """Pairs of what both measured, each round in the other order."""
    pairs = []
    for number in range(warm_ups + rounds):
        if number % 2:
            hand = by_hand()
            pair = ours(), hand
        else:
            mine = ours()
            pair = mine, by_hand()
        if number >= warm_ups:
            pairs.append(pair)
    return pairs


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Between what the median lies in 95 of 100 cases, whatever the distribution."""
    ordered, count = sorted(values), len(values)
    below, left = 0.0, 0
    while left < (count - 1) // 2:
        below += math.comb(count, left) / 2**count
        if below > _DOUBT:
            break
        left += 1
    first = max(0, left - 1)
    return ordered[first], ordered[count - 1 - first]


def ratio(what: str, pairs: Sequence[tuple[float, float]], target: float, unit: str) -> Figure:
    """The median ratio of the pairs; what both took is in the note."""
    ratios = [mine / hand for mine, hand in pairs]
    least, most = interval(ratios)
    ours, hand = (median(values) for values in zip(*pairs, strict=True))
    note = f"{least:.2f} to {most:.2f}; {ours:.3g} and {hand:.3g} {unit}"
    return Figure(what, median(ratios), "x", target, note=note)
