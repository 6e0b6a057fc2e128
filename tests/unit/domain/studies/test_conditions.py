"""Parameters that only some trials have."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.studies.combinations import combinations, grid_point, grid_size
from cloud_ml.domain.studies.conditions import only_active
from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.errors import InvalidRequest

_SPACE: Mapping[str, Any] = {
    "momentum": {"values": [0.5, 0.9], "active_if": {"optimizer": "sgd"}},
    "nesterov": {"values": [True, False], "active_if": {"momentum": 0.9}},
    "optimizer": ["adam", "sgd"],
    "layers": {"min": 1, "max": 3, "type": "int"},
    "width": {"min": 8, "max": 16, "type": "int", "step": 8, "active_if": {"layers": [2, 3]}},
}


def test_a_parameter_stands_behind_those_that_its_conditions_name() -> None:
    names = [one.name for one in parse_space(_SPACE)]
    assert names == ["optimizer", "momentum", "nesterov", "layers", "width"]
    document = {one.name: one.document() for one in parse_space(_SPACE)}
    assert document == dict(_SPACE)
    assert parse_space(document) == parse_space(_SPACE)


def test_a_grid_has_each_distinct_combination_once() -> None:
    space = parse_space(_SPACE)
    points = list(combinations(space))
    assert len(points) == grid_size(space, 1000) == (1 + 1 + 2) * (1 + 2 + 2)
    assert len({tuple(point.items()) for point in points}) == len(points)
    assert points[0] == {"optimizer": "adam", "layers": 1}
    assert [grid_point(space, number) for number in range(20)] == points
    assert all(check_trial(space, point, "trials[0]") == point for point in points)
    assert grid_size(space, 7) == 7, "no more are counted than are asked for"


def test_a_grid_of_many_conditions_is_counted_no_further_than_wanted() -> None:
    deep: dict[str, Any] = {"p0": [0, 1]}
    for number in range(1, 60):
        deep[f"p{number}"] = {"values": [0, 1], "active_if": {f"p{number - 1}": [0, 1]}}
    space = parse_space(deep)
    assert grid_size(space, 500) == 500
    assert grid_point(space, 3)["p58"] == 1


@given(st.integers())
def test_a_trial_by_chance_lacks_what_is_not_active(seed: int) -> None:
    space, luck = parse_space(_SPACE), random.Random(seed)
    trial = only_active(space, {one.name: one.sample(luck) for one in space})
    assert ("momentum" in trial) == (trial["optimizer"] == "sgd")
    assert ("nesterov" in trial) == (trial.get("momentum") == 0.9)
    assert ("width" in trial) == (trial["layers"] != 1)
    assert check_trial(space, trial, "trials[0]") == trial


@pytest.mark.parametrize(
    ("conditions", "field", "message"),
    [
        ({"optimiser": "sgd"}, "space.x.active_if.optimiser", "optimizer"),
        ({"optimizer": "lion"}, "space.x.active_if.optimizer", "adam, sgd"),
        ({"optimizer": ["sgd", "lion"]}, "space.x.active_if.optimizer", "adam, sgd"),
        ({"optimizer": []}, "space.x.active_if.optimizer", "a value of optimizer"),
        ({"optimizer": {"sgd": 1}}, "space.x.active_if.optimizer", "adam, sgd"),
        ({"layers": 4}, "space.x.active_if.layers", "1 to 3"),
        ({"layers": 1.5}, "space.x.active_if.layers", "1 to 3"),
        ({"layers": True}, "space.x.active_if.layers", "1 to 3"),
        ({"rate": 0.5}, "space.x.active_if.rate", "a list of values, whole numbers or a step"),
        ({"x": 1}, "space.x.active_if", "x → x"),
        ({"y": 1}, "space.x.active_if", "x → y → x"),
        ({}, "space.x.active_if", "an object"),
        ("optimizer", "space.x.active_if", "an object"),
    ],
)
def test_a_condition_that_is_none_is_named(conditions: Any, field: str, message: str) -> None:
    space = {
        "x": {"values": [1, 2], "active_if": conditions},
        "y": {"values": [1, 2], "active_if": {"x": 1}},
        "optimizer": ["adam", "sgd"],
        "layers": {"min": 1, "max": 3, "type": "int"},
        "rate": {"min": 0, "max": 1},
    }
    with pytest.raises(InvalidRequest, match=message) as refused:
        parse_space(space)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        ({"optimizer": "adam", "momentum": 0.5, "layers": 1}, "optimizer is sgd, and it is adam"),
        ({"optimizer": "sgd", "layers": 1}, "a value for momentum"),
        ({"optimizer": "adam", "nesterov": True, "layers": 1}, "momentum is 0.9, and it has no"),
        ({"optimizer": "adam", "layers": 2}, "a value for width"),
    ],
)
def test_a_trial_of_a_users_own_has_what_is_active_and_nothing_else(
    trial: Any, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_trial(parse_space(_SPACE), trial, "trials[0]")


def test_a_constant_is_a_value_that_all_trials_have() -> None:
    (one,) = parse_space({"epochs": {"value": 3}})
    assert one.constant
    assert one.document() == [3]
    with pytest.raises(InvalidRequest, match="either value, or values"):
        parse_space({"epochs": {"value": 3, "min": 1}})
    with pytest.raises(InvalidRequest, match=r"space\.epochs\.value"):
        parse_space({"epochs": {"value": None}})


def test_a_trial_of_a_users_own_may_leave_out_constants() -> None:
    space = parse_space(
        {
            "o": ["adam", "sgd"],
            "batch": {"value": 32},
            "m": {"value": 0.9, "active_if": {"o": "sgd"}},
        }
    )
    assert check_trial(space, {"o": "adam"}, "trials[0]") == {"o": "adam", "batch": 32}
    assert check_trial(space, {"o": "sgd"}, "trials[0]") == {"o": "sgd", "batch": 32, "m": 0.9}
    with pytest.raises(InvalidRequest, match="one of \\[32\\]"):
        check_trial(space, {"o": "adam", "batch": 64}, "trials[0]")
