"""Which differences between runs have likely changed a metric, judged by other runs. Pure.

The model is an additive Gaussian process: a metric is the sum of one unknown function for each fact
and of noise. Facts that make no difference in the other runs get little of the sum, and so do facts
that seldom matter. The part of a fact in the difference of two runs is its likely effect.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

Fact = tuple[str, str]
"""Kind and name, such as ``("argument", "lr")``."""
Facts = Mapping[Fact, Hashable]

ENOUGH_RUNS = 8
"""Other runs with the metric. With fewer, the order is that of what matters in general."""
MOST_RUNS, MOST_FACTS = 100, 40
WEIGHTS: Mapping[str, float] = {
    "argument": 1.0,
    "data": 1.0,
    "code": 0.9,
    "module": 0.9,
    "variable": 0.5,
    "framework": 0.5,
    "package": 0.4,
    "tasks": 0.35,
    "checkpoint": 0.3,
    "seed": 0.2,
    "machine": 0.1,
    "attempts": 0.1,
    "limit": 0.08,
    "secret": 0.05,
    "output": 0.01,
    "git": 0.01,
}
"""How much a kind of fact matters before any run was looked at: the order, and where the model
begins.
"""
_LEAST_WEIGHT = 0.02
_ROUNDS, _LENGTH, _NOISES = 4, 0.6, (0.02, 0.1, 0.4)
_LOGARITHMIC = 20.0
"""Positive numbers of which the largest is so many times the least are judged by ratios."""


@dataclass(frozen=True)
class RankedFact:
    """A fact that differs. ``effect`` is in units of the metric, ``None`` where other runs do not
    tell; ``share`` is its part of all effects. ``runs`` other runs have another value of it.
    """

    fact: Fact
    effect: float | None
    share: float | None
    runs: int


@dataclass(frozen=True)
class Ranking:
    """The facts that differ, those with the largest likely effect first. ``runs`` were looked at."""

    facts: Sequence[RankedFact]
    runs: int
    enough: bool


def rank_differences(
    compared: Sequence[tuple[Facts, float | None]],
    others: Sequence[tuple[Facts, float]],
) -> Ranking:
    """Rank what differs between the compared runs, each with its facts and its value.

    ``others`` are further runs of the experiment, with theirs.
    """
    differing = differing_facts([facts for facts, _ in compared])
    others = [one for one in others if math.isfinite(one[1])][:MOST_RUNS]
    counts = {fact: _other_values(fact, compared, others) for fact in differing}
    if len(others) < ENOUGH_RUNS:
        ordered = sorted(differing, key=lambda fact: (-weight_of(fact), fact))
        ranked = [RankedFact(fact, None, None, counts[fact]) for fact in ordered]
        return Ranking(ranked, len(others), enough=False)
    known = [(facts, value) for facts, value in compared if value is not None]
    known = [one for one in known if math.isfinite(one[1])]
    effects = _effects(differing, [facts for facts, _ in compared], [*known, *others])
    whole = sum(abs(effect) for effect in effects.values())
    ordered = sorted(differing, key=lambda fact: (-abs(effects[fact]), -weight_of(fact), fact))
    ranked = [
        RankedFact(fact, effects[fact], abs(effects[fact]) / whole if whole else 0.0, counts[fact])
        for fact in ordered
    ]
    return Ranking(ranked, len(others), enough=True)


def differing_facts(runs: Sequence[Facts]) -> list[Fact]:
    """The facts of which not all runs have the same value, in their order."""
    every = {fact: None for facts in runs for fact in facts}
    return [fact for fact in every if len({facts.get(fact) for facts in runs}) > 1]


def weight_of(fact: Fact) -> float:
    """How much a fact matters in general."""
    return WEIGHTS.get(fact[0], _LEAST_WEIGHT)


def _other_values(
    fact: Fact,
    compared: Sequence[tuple[Facts, float | None]],
    others: Sequence[tuple[Facts, float]],
) -> int:
    first = compared[0][0].get(fact)
    return sum(facts.get(fact) != first for facts, _ in others)


def _effects(
    differing: Sequence[Fact], compared: Sequence[Facts], known: Sequence[tuple[Facts, float]]
) -> dict[Fact, float]:
    """The change of the metric by each fact, from the first run to the one farthest from it."""
    runs = [facts for facts, _ in known]
    chosen = _chosen(differing, runs)
    values, spread = _standardise([value for _, value in known])
    everybody = [*runs, *compared]
    kernels = [_kernel([facts.get(fact) for facts in everybody]) for fact in chosen]
    weights = [weight_of(fact) for fact in chosen]
    parts: list[list[float]] = []
    for _ in range(_ROUNDS):
        alpha = _fit(kernels, weights, values)
        parts = [
            _part(kernel, weight, alpha) for kernel, weight in zip(kernels, weights, strict=True)
        ]
        weights = _relevances(chosen, parts, len(runs))
    at = dict(zip(chosen, parts, strict=True))
    beyond = len(runs)
    return {fact: _change(at[fact][beyond:]) * spread if fact in at else 0.0 for fact in differing}


def _chosen(differing: Sequence[Fact], runs: Sequence[Facts]) -> list[Fact]:
    """Facts that the model has a function for: those in question, and others that vary."""
    found = sorted(differing, key=lambda fact: -weight_of(fact))[:MOST_FACTS]
    others = [fact for fact in differing_facts(runs) if fact not in set(differing)]
    others.sort(key=lambda fact: -weight_of(fact))
    return [*found, *others[: MOST_FACTS - len(found)]]


def _standardise(values: Sequence[float]) -> tuple[list[float], float]:
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    if not deviation or not math.isfinite(deviation):
        return [0.0] * len(values), 0.0
    return [(value - mean) / deviation for value in values], deviation


def _kernel(values: Sequence[Hashable]) -> list[list[float]]:
    """How alike each two values are: by their distance for numbers, else equal or not."""
    places = _places(values)
    if places is None:
        return [[1.0 if one == other else 0.0 for other in values] for one in values]
    return [
        [math.exp(-((one - other) ** 2) / (2 * _LENGTH**2)) for other in places] for one in places
    ]


def _places(values: Sequence[Hashable]) -> list[float] | None:
    """Numbers between 0 and 1 in the place of values; ``None`` where these are none."""
    numbers = [_number(value) for value in values]
    found = [number for number in numbers if number is not None]
    if len(found) < len(values) or len(set(found)) < 3:
        return None
    low, high = min(found), max(found)
    if low > 0 and high / low >= _LOGARITHMIC:
        found = [math.log(number) for number in found]
        low, high = min(found), max(found)
    return [(number - low) / (high - low) for number in found]


def _number(value: Hashable) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _fit(
    kernels: Sequence[Sequence[Sequence[float]]], weights: Sequence[float], values: Sequence[float]
) -> list[float]:
    """The solution of the process, with the noise that explains the values best."""
    count = len(values)
    whole = [
        [
            sum(
                weight * kernel[row][column]
                for kernel, weight in zip(kernels, weights, strict=True)
            )
            for column in range(row + 1)
        ]
        for row in range(count)
    ]
    fits = [_solve(whole, noise, values) for noise in _NOISES]
    return max(fits, key=lambda fit: fit[0])[1]


def _solve(
    lower_half: Sequence[Sequence[float]], noise: float, values: Sequence[float]
) -> tuple[float, list[float]]:
    """(likelihood, solution) by Cholesky's decomposition."""
    count = len(values)
    lower: list[list[float]] = []
    for row in range(count):
        line: list[float] = []
        for column in range(row + 1):
            above = line if column == row else lower[column]
            rest = lower_half[row][column] - sum(map(_times, line, above[:column]))
            if column == row:
                # Rounding errors may make it 0 or negative.
                line.append(math.sqrt(max(rest + noise, 1e-12)))
            else:
                line.append(rest / lower[column][column])
        lower.append(line)
    half: list[float] = []
    for row in range(count):
        half.append((values[row] - sum(map(_times, lower[row], half))) / lower[row][row])
    solution = [0.0] * count
    for row in reversed(range(count)):
        rest = half[row] - sum(lower[at][row] * solution[at] for at in range(row + 1, count))
        solution[row] = rest / lower[row][row]
    likelihood = -0.5 * sum(one * one for one in half)
    likelihood -= sum(math.log(lower[row][row]) for row in range(count))
    return likelihood, solution


def _times(one: float, other: float) -> float:
    return one * other


def _part(kernel: Sequence[Sequence[float]], weight: float, alpha: Sequence[float]) -> list[float]:
    """The function of one fact, at each run."""
    return [weight * sum(map(_times, row, alpha)) for row in kernel]


def _relevances(
    chosen: Sequence[Fact], parts: Sequence[Sequence[float]], count: int
) -> list[float]:
    """Weights for the next round: what a function does in the runs, and a little of what it may."""
    found = []
    for fact, part in zip(chosen, parts, strict=True):
        inside = part[:count]
        mean = sum(inside) / count
        variance = sum((value - mean) ** 2 for value in inside) / count
        found.append(0.05 * weight_of(fact) + variance)
    return found


def _change(values: Sequence[float]) -> float:
    """From the first to the one farthest from it."""
    return max((value - values[0] for value in values), key=abs)
