"""What a study searches: which documents are taken, and which values come out of them."""

from __future__ import annotations

import math
import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.studies.combinations import grid_point, grid_size
from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.space import parse_space
from cloud_ml.errors import InvalidRequest

_FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize(
    ("parameter", "field"),
    [
        ({"min": 1}, "space.lr.max"),
        ({"values": [1, 2], "type": "int"}, "space.lr.type"),
        ({"values": [1, 2], "scale": "log"}, "space.lr.scale"),
        ({"value": 1, "type": "categorical"}, "space.lr.type"),
        ({"values": [1, 2], "min": 1}, "space.lr"),
        ({"type": "categorical", "min": 1, "max": 2}, "space.lr.type"),
        ({"min": 2, "max": 1}, "space.lr.max"),
        ({"min": 1, "max": 1}, "space.lr.max"),
        ({"min": 0, "max": 1, "scale": "log"}, "space.lr.min"),
        ({"min": 1, "max": 2, "scale": "cubic"}, "space.lr.scale"),
        ({"min": 1, "max": 2, "type": "text"}, "space.lr.type"),
        ({"min": 1, "max": 2.5, "type": "int"}, "space.lr"),
        ({"min": 1, "max": 2, "step": 0}, "space.lr.step"),
        ({"min": 1, "max": 2, "step": 3}, "space.lr.step"),
        ({"min": 1.0, "max": 2, "step": 0.1, "scale": "log"}, "space.lr.step"),
        ({"min": 0.5, "max": 0.9, "step": 0.1, "scale": "reverse-log"}, "space.lr.step"),
        ({"min": -0.1, "max": 0.9, "scale": "reverse-log"}, "space.lr.min"),
        ({"min": 0, "max": 1, "scale": "reverse-log"}, "space.lr.max"),
        ({"min": 0, "max": 1, "type": "int", "scale": "reverse-log"}, "space.lr.max"),
        ({"min": float("nan"), "max": 2}, "space.lr.min"),
        ({"min": True, "max": 2}, "space.lr.min"),
        ({"low": 1, "high": 2}, "space.lr.low"),
        ({"min": "1e-4", "max": "much"}, "space.lr.max"),
        ({"min": 1, "max": 2, "values": [1]}, "space.lr"),
        ([], "space.lr"),
        ([1, 2, 1], "space.lr[2]"),
        ([{}], "space.lr[0]"),
        ([10**400], "space.lr[0]"),
        ("0.1", "space.lr"),
        (None, "space.lr"),
    ],
)
def test_a_parameter_that_is_none_is_named(parameter: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_space({"lr": parameter})
    assert refused.value.field == field
    assert refused.value.allowed


def test_a_list_of_values_may_be_called_categorical() -> None:
    (named,) = parse_space({"opt": {"type": "categorical", "values": ["adam", "sgd"]}})
    assert named.values == ("adam", "sgd")
    assert named.document() == ["adam", "sgd"]


@pytest.mark.parametrize("name", ["", "a b", "--lr", "1st", "x" * 101, "a=b"])
def test_a_name_that_is_no_flag_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="space"):
        parse_space({name: [1]})


@given(low=_FINITE, width=st.floats(1e-3, 1e6), seed=st.integers())
def test_samples_lie_in_their_range(low: float, width: float, seed: int) -> None:
    space = parse_space(
        {
            "linear": {"min": low, "max": low + width, "type": "double"},
            "log": {"min": width, "max": width * 10, "scale": "log", "type": "double"},
            "whole": {"min": 1, "max": 9, "type": "int"},
            "whole-log": {"min": 1, "max": 1000, "scale": "log", "type": "int"},
            "steps": {"min": 0.0, "max": 1.0, "step": 0.25},
            "one": ["a", 2, True],
        }
    )
    luck = random.Random(seed)
    linear, log, whole, whole_log, steps, one = (each.sample(luck) for each in space)
    assert low <= float(linear) <= low + width
    assert width <= float(log) <= width * 10
    assert whole in range(1, 10)
    assert isinstance(whole_log, int)
    assert 1 <= whole_log <= 1000
    assert steps in (0, 0.25, 0.5, 0.75, 1)
    assert one in ("a", 2, True)


@given(low=st.floats(0, 0.9), missing=st.floats(1e-12, 0.05), share=st.floats(0, 1))
def test_a_reversed_logarithm_and_its_value_belong_together(
    low: float, missing: float, share: float
) -> None:
    (found,) = parse_space({"m": {"min": low, "max": 1 - missing, "scale": "reverse-log"}})
    value = found.at(share)
    assert found.has(value)
    assert low <= float(value) < 1
    assert found.share_of(value) == pytest.approx(share, abs=1e-3)


def test_a_reversed_logarithm_spreads_what_is_close_to_one() -> None:
    (found,) = parse_space({"m": {"min": 0.9, "max": 0.999, "scale": "reverse-log"}})
    assert [found.at(share) for share in (0, 0.5, 1)] == pytest.approx([0.9, 0.99, 0.999])


def test_a_grid_has_each_combination_once() -> None:
    space = parse_space({"optimizer": ["adam", "sgd"], "layers": {"min": 1, "max": 3, "type": "int"},
                         "lr": {"min": 0.1, "max": 0.3, "step": 0.1}})  # fmt: skip
    found = [grid_point(space, number) for number in range(grid_size(space, 1000))]
    assert len(found) == 18
    assert found[0] == {"optimizer": "adam", "layers": 1, "lr": 0.1}
    assert found[1] == {"optimizer": "adam", "layers": 1, "lr": 0.2}
    assert found[-1] == {"optimizer": "sgd", "layers": 3, "lr": 0.3}
    assert len({tuple(point.values()) for point in found}) == 18


def test_numbers_that_yaml_takes_for_texts_are_numbers() -> None:
    (found,) = parse_space({"lr": {"min": "1e-4", "max": "1E-1", "scale": "log"}})
    assert (found.low, found.high) == (1e-4, 1e-1)


@pytest.mark.parametrize(
    "parameter",
    [
        ["a", 1, True],
        {"min": 1, "max": 9, "type": "int", "scale": "log"},
        {"min": 0.5, "max": 1.5, "step": 0.25},
        {"min": 0.9, "max": 0.999, "scale": "reverse-log"},
    ],
)
def test_a_parameter_is_shown_as_it_was_asked_for(parameter: Any) -> None:
    assert parse_space({"lr": parameter})[0].document() == parameter


def test_words_of_other_tools_are_understood_as_mistakes() -> None:
    for word, suggestion in (("low", "min"), ("choices", "values"), ("maxx", "max")):
        with pytest.raises(InvalidRequest, match=f"did you mean {suggestion}"):
            parse_space({"lr": {word: 1}})


def test_a_grid_over_a_continuous_range_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="step"):
        grid_size(parse_space({"lr": {"min": 0.1, "max": 0.2}}), 1000)


def test_a_trial_of_a_users_own_has_each_parameter() -> None:
    space = parse_space({"lr": [0.1, 0.2]})
    assert check_trial(space, {"lr": 0.2}, "trials[0]") == {"lr": 0.2}
    assert check_trial(parse_space({"n": [1.0, 2.0]}), {"n": 1}, "trials[0]") == {"n": 1}
    with pytest.raises(InvalidRequest, match="lr"):
        check_trial(space, {}, "trials[0]")
    with pytest.raises(InvalidRequest, match="a number"):
        check_trial(parse_space({"lr": {"min": 0, "max": 1}}), {"lr": "abc"}, "trials[0]")
    with pytest.raises(InvalidRequest, match="allowed is one of lr"):
        check_trial(space, {"lr": 1, "rate": 2}, "trials[0]")
    with pytest.raises(InvalidRequest, match=r"trials\[0\].lr"):
        check_trial(space, {"lr": None}, "trials[0]")


@pytest.mark.parametrize(
    ("document", "value", "allowed"),
    [
        ([0.1, 0.2], 0.5, r"one of \[0.1, 0.2\]"),
        ([True, False], 1, r"one of \[True, False\]"),
        ({"min": 0, "max": 1}, 1.5, "0 to 1, as the space says"),
        ({"min": 1, "max": 9, "type": "int"}, 2.5, "a whole number of 1 to 9"),
        ({"min": 0, "max": 1, "step": 0.25}, 0.3, "in steps of 0.25"),
    ],
)
def test_a_trial_of_a_users_own_is_in_the_space(document: Any, value: Any, allowed: str) -> None:
    space = parse_space({"x": document})
    with pytest.raises(InvalidRequest, match=allowed) as refused:
        check_trial(space, {"x": value}, "trials[0]")
    assert refused.value.field == "trials[0].x"


def test_a_range_is_never_left_at_the_end_of_numbers() -> None:
    with pytest.raises(InvalidRequest, match=r"space\.lr\.max"):
        parse_space({"lr": {"min": -1.7e308, "max": 1.7e308}})
    top = sys.float_info.max
    (log,) = parse_space({"lr": {"min": 1e308, "max": top, "scale": "log"}})
    (narrow,) = parse_space({"lr": {"min": top * 0.999, "max": top, "step": top * 0.0005}})
    for seed in range(50):
        assert math.isfinite(float(log.sample(random.Random(seed))))
    assert math.isfinite(float(narrow.value_at(narrow.size - 1)))


@pytest.mark.parametrize("value", ["\ud800", "a\0b", "x" * 1001])
def test_a_text_that_is_no_argument_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest, match=r"space\.lr\[1\]"):
        parse_space({"lr": ["fine", value]})


def test_equal_values_of_other_types_are_values_of_their_own() -> None:
    (parameter,) = parse_space({"lr": [1, 1.0, True, "1"]})
    assert parameter.size == 4
    with pytest.raises(InvalidRequest, match="each value once"):
        parse_space({"lr": [1, 2, 1]})


@pytest.mark.parametrize(("word", "whole"), [("integer", True), ("int", True), ("float", False)])
def test_types_have_their_names_of_other_tools(word: str, whole: bool) -> None:
    (parameter,) = parse_space({"x": {"min": 1, "max": 4, "type": word}})
    assert parameter.whole == whole
