"""Constraints between parameters: what they mean, and what cannot be written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.studies.combinations import combinations, grid_size
from cloud_ml.domain.studies.constraints import parse_constraint, parse_constraints, why_broken
from cloud_ml.domain.studies.named_trials import check_trial
from cloud_ml.domain.studies.space import Parameter, parse_space
from cloud_ml.errors import InvalidRequest
from cloud_ml.tuning import chance
from cloud_ml.tuning.base import Observation, Outcome, Problem
from cloud_ml.tuning.feasible import first_point

_A3_B4: Mapping[str, Any] = {"a": 3, "b": 4, "batch-size": 64, "x.y": 0.5}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a < b", True),
        ("a<b", True),
        ("b < a", False),
        ("a <= 3", True),
        ("a == 3.0", True),
        ("a != 3", False),
        ("1 < a < b <= 4", True),
        ("1 < a < b < 4", False),
        ("a + b * 2 == 11", True),
        ("(a + b) * 2 == 14", True),
        ("b - a - 1 == 0", True),
        ("b / 2 / 2 == 1", True),
        ("-a < -b + 2", True),
        ("- - a == 3", True),
        ("2e0 * a >= 6.", True),
        ("`batch-size` == 64", True),
        ("x.y * 2 == 1", True),
        ("a / (b - 4) > 0", False),
        ("a / (b - 4) != 0", False),
        ("1e308 * 10 * a > 0", False),
        ("missing < a", True),
    ],
)
def test_a_constraint_means_what_arithmetic_says(text: str, holds: bool) -> None:
    assert parse_constraint(text).holds(_A3_B4) is holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a number or a parameter is expected at character 1"),
        ("a", "a comparison is expected at character 2"),
        ("a = b", "means nothing"),
        ("a < ", "a number or a parameter is expected at character"),
        ("a < b)", "a comparison is expected at character 6"),
        ("(a < b)", r"'\)' is expected"),
        ("a < b b", "a comparison is expected at character 7"),
        ("a ** 2 < b", "a number or a parameter"),
        ("a % 2 < b", "means nothing"),
        ("abs(a) < b", "a comparison is expected at character 4"),
        ("__import__('os') < 1", "means nothing"),
        ("a.__class__(b) < 1", "a comparison is expected"),
        ("a and b < 1", "a comparison is expected"),
        ("a < b or a < 1", "a comparison is expected"),
        ("a < 'b'", "means nothing"),
        ("`a b` < 1", "is no name of a parameter"),
        ("a < " + "(" * 30 + "b" + ")" * 30, "at most 20 parentheses"),
        ("a < " + "-" * 30 + "b", "at most 20 parentheses"),
        ("1 < 2", "names a parameter"),
        ("a < c", "c is none"),
        ("a < mode", "those of mode are not"),
        ("a < " + "b" * 300, "at most 200 characters"),
        ("a < \N{ARABIC-INDIC DIGIT TWO}", "means nothing"),
        (3, "at most 200 characters"),
    ],
)
def test_what_is_no_constraint_is_refused_with_the_place(text: Any, message: str) -> None:
    space = parse_space({"a": [1, 2], "b": {"min": 0, "max": 1}, "mode": ["x", "y"]})
    with pytest.raises(InvalidRequest, match=message) as refused:
        parse_constraints(["a < b", text], space)
    assert refused.value.field == "constraints[1]"


@given(st.text("ab 12.+-*/()<>=!`e", max_size=200))
def test_any_text_is_a_constraint_or_an_error(text: str) -> None:
    try:
        found = parse_constraint(text)
    except ValueError:
        return
    assert found.names or found.cost
    assert found.holds({"a": 1.5, "b": -2}) in (True, False)


def test_the_longest_constraint_takes_no_time() -> None:
    text = ("a*" * 98 + "a<a")[:200]
    begin = time.process_time()
    for _ in range(1000):
        assert parse_constraint(text).cost < 200
    assert time.process_time() - begin < 10


def test_a_grid_has_only_combinations_that_keep_them() -> None:
    space = parse_space(
        {"a": {"min": 1, "max": 50, "type": "int"}, "b": {"min": 1, "max": 50, "type": "int"}}
    )
    points = list(combinations(space, ("a < b", "a * b <= 20")))
    assert points == [
        {"a": a, "b": b} for a in range(1, 51) for b in range(1, 51) if a < b and a * b <= 20
    ]
    assert grid_size(space, 1000, ("a < b", "a * b <= 20")) == len(points)


def test_a_grid_in_which_little_is_found_ends_in_time() -> None:
    wide = {name: {"min": 0, "max": 10**6, "type": "int"} for name in "abcdef"}
    space = parse_space(wide)
    begin = time.process_time()
    with pytest.raises(InvalidRequest, match="or another algorithm") as refused:
        grid_size(space, 1000, ("a + b + c + d + e + f == 6000000",))
    assert refused.value.field == "constraints"
    assert time.process_time() - begin < 5


def test_a_constraint_that_is_broken_is_told_with_its_values() -> None:
    space = parse_space({"a": {"min": 0, "max": 9}, "b": {"min": 0, "max": 9}})
    assert why_broken(("a < b",), {"a": 1, "b": 2}) == ""
    assert why_broken(("a < b",), {"a": 2.5, "b": 2}) == "a < b does not hold: a is 2.5, b is 2"
    with pytest.raises(InvalidRequest, match="a < b does not hold") as refused:
        check_trial(space, {"a": 3, "b": 2}, "trials[0]", ("a < b",))
    assert refused.value.field == "trials[0]"
    listed = parse_space({"a": [1, 2], "b": [3]})
    with pytest.raises(InvalidRequest, match="allowed is one of"):
        check_trial(listed, {"a": "much", "b": 3}, "trials[0]", ("a < b",))


def _costly(last: str) -> tuple[tuple[Parameter, ...], tuple[str, ...]]:
    """The longest constraints that there may be, with one that hardly any point keeps."""
    space = parse_space({f"a{n}": {"min": 0, "max": 10**6, "type": "int"} for n in range(100)})
    long = [f"a99*0+a{n}{'+1' * 90}>0" for n in range(19)]
    return space, parse_constraints([*long, last], space)


def test_costly_constraints_that_no_point_keeps_are_refused_soon() -> None:
    space, constraints = _costly("a99 * a98 * a97 == 6999874006447")
    began = time.process_time()
    assert first_point(space, constraints) is None
    assert time.process_time() - began < 4  # without a bound 10, for one request


def test_costly_constraints_that_hardly_any_point_keeps_have_a_point_soon() -> None:
    space, constraints = _costly("+".join(f"a{n}" for n in range(40)) + "<=0")
    only = Observation(parameters=dict.fromkeys((one.name for one in space), 0),
                       outcome=Outcome.DONE, cost=1.0)  # fmt: skip
    problem = Problem(space=space, seed=1, number=9, constraints=constraints, trials=[only] * 9)
    began = time.process_time()
    found = chance.suggest(problem)
    assert time.process_time() - began < 3  # without a bound 5, for each trial
    assert all(found[f"a{n}"] == 0 for n in range(40))
