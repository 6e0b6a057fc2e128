"""Importance: shares of the variance that are known beforehand, and parameters that trials lack."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cloud_ml.domain.studies.space import parse_space
from cloud_ml.tuning.base import Observation, Outcome, Problem

pytest.importorskip("numpy")
from cloud_ml.tuning.numeric.importance import importance

_SPACE = parse_space(
    {"x": {"min": 0, "max": 1}, "y": {"min": 0, "max": 1}, "o": ["a", "b", "c"], "idle": [1, 2, 3]}
)


def _trials(count: int, cost: Any, *, lacks: str = "") -> tuple[Observation, ...]:
    luck = random.Random(1)
    found = []
    for number in range(count):
        values = {one.name: one.sample(luck) for one in _SPACE}
        if lacks and number % 2:
            del values[lacks]
        found.append(Observation(parameters=values, outcome=Outcome.DONE, cost=cost(values)))
    return tuple(found)


def _problem(trials: tuple[Observation, ...]) -> Problem:
    return Problem(space=_SPACE, seed=1, number=len(trials), trials=trials)


def test_the_shares_of_a_sum_are_those_of_its_parts() -> None:
    """Variances: 16/12 of x, 4/12 of y, 2/3 of o."""
    problem = _problem(_trials(200, lambda at: 4 * at["x"] + 2 * at["y"] + "abc".index(at["o"])))
    found = importance(problem)
    shares = [mean for mean, _, _ in found["fanova"]]
    assert shares == pytest.approx([4 / 7, 1 / 7, 2 / 7, 0], abs=0.06)
    assert all(low <= mean <= high for mean, low, high in found["fanova"])
    drops = [mean for mean, _, _ in found["permutation"]]
    assert sorted(range(4), key=lambda column: -drops[column])[:2] == [0, 2]
    assert drops[3] == pytest.approx(0, abs=0.05)
    assert found["explained"] > 0.9
    assert found == importance(problem)


def test_a_parameter_that_trials_lack_is_judged_among_those_that_have_it() -> None:
    found = importance(_problem(_trials(200, lambda at: at.get("x", 5.0), lacks="x")))
    mean, _, _ = found["fanova"][0]
    assert 0 < mean < 0.1  # between those with and without it there is most of the variance
    assert [round(one[0], 2) for one in found["fanova"][1:]] == [0, 0, 0]


@pytest.mark.parametrize(
    "cost", [lambda _: 1.0, lambda at: 1e300 * at["x"], lambda at: 1e308 * (1 - 2 * at["x"])]
)
def test_costs_at_the_edge_give_numbers(cost: Any) -> None:
    found = importance(_problem(_trials(30, cost)))
    assert all(-2 < one < 10 for each in found["fanova"] + found["permutation"] for one in each)


def test_one_trial_that_diverged_is_not_all_the_variance() -> None:
    trials = list(_trials(100, lambda at: at["x"]))
    trials[7] = Observation(parameters=trials[7].parameters, outcome=Outcome.DONE, cost=1e12)
    assert importance(_problem(tuple(trials)))["fanova"][0][0] > 0.8


@pytest.mark.parametrize("count", range(2, 12))
def test_after_few_trials_each_importance_is_within_its_range(count: int) -> None:
    found = importance(_problem(_trials(count, lambda at: at["x"] ** 8 + (at["o"] == "a"))))
    for measure in ("fanova", "permutation"):
        assert all(low <= mean <= high for mean, low, high in found[measure])
