"""Pareto fronts and hypervolumes, against the definitions."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from cloud_ml.models.studies.pareto import Costs, dominates, front_of, hypervolume


def _points(objectives: int, seed: int) -> list[Costs]:
    luck = random.Random(seed)
    return [tuple(luck.randint(0, 6) / 6 for _ in range(objectives)) for _ in range(8)]


def _by_inclusion(points: list[Costs]) -> float:
    whole, kept = 0.0, set(points)
    for count in range(1, len(kept) + 1):
        for some in combinations(kept, count):
            volume = 1.0
            for column in zip(*some, strict=True):
                volume *= 1 - max(column)
            whole += (-1) ** (count + 1) * volume
    return whole


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_fronts_and_volumes_are_those_of_the_definitions(objectives: int) -> None:
    for seed in range(20):
        points = _points(objectives, seed)
        expected = [
            number
            for number, one in enumerate(points)
            if not any(dominates(other, one) for other in points)
        ]
        assert front_of(points) == expected
        assert hypervolume(points, (1.0,) * objectives) == pytest.approx(_by_inclusion(points))


def test_a_front_too_large_to_measure_has_no_volume_and_points_beyond_count_for_nothing() -> None:
    luck = random.Random(1)
    many = [tuple(luck.random() for _ in range(4)) for _ in range(101)]
    assert hypervolume(many, (1.0,) * 4) is None
    assert hypervolume([(2.0, 0.0), (1.0, 0.5)], (1.0, 1.0)) == 0.0
    assert front_of([]) == []
