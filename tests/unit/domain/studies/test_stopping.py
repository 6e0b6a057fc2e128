"""Rules of early stopping: what they end, what they let go on, and that they forget nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.studies.stopping import (
    STOPPERS,
    Curve,
    Curves,
    Stopper,
    bracket_of,
    condensed,
    options_of,
    parse_stopper,
    says_more,
    turned,
    why_stop,
)
from cloud_ml.errors import InvalidRequest


def _curve(*values: float, at: int = 0) -> Curve:
    return [Point(step, at + step, value) for step, value in enumerate(values)]


def _stopper(name: str, **options: Any) -> Stopper:
    found = parse_stopper(name, options)
    assert found is not None
    return found


def _why(stopper: Stopper, own: Curve, others: Sequence[Curve] = ()) -> str:
    return why_stop(stopper, Curves(own, others, others))


def test_worse_than_the_median_at_the_same_step_ends() -> None:
    stopper = _stopper("median", min_trials=3)
    others = [_curve(9, 5, 1), _curve(9, 6, 2), _curve(9, 7, 3)]
    assert _why(stopper, _curve(9, 6), others) == "", "as good as the median at step 1"
    assert "median of 3 trials" in _why(stopper, _curve(9, 8), others)
    assert _why(stopper, _curve(9, 8), others[:2]) == "", "too few to say"
    assert _why(_stopper("median", min_trials=3, warmup_steps=2), _curve(9, 8), others) == ""
    assert _why(stopper, _curve(5.5, 99), others) == "", "its best value counts"


def test_at_a_rung_only_the_best_of_those_before_go_on() -> None:
    stopper = _stopper("asha", min_steps=1, factor=2)
    best, worse = _curve(9, 1, 1), _curve(9, 2, 2)
    assert _why(stopper, _curve(9, 3), []) == "", "the first one is the best"
    assert "best 1 of 3" in _why(stopper, _curve(9, 3, at=10), [best, worse])
    assert _why(stopper, _curve(9, 0.5, at=10), [best, worse]) == ""
    assert _why(stopper, _curve(9), [best, worse]) == "", "it has reached no rung"


def test_trials_that_come_later_do_not_end_one_that_has_passed_its_rung() -> None:
    stopper = _stopper("asha", factor=2)
    own = _curve(9, 3)
    later = [_curve(9, 1, at=100), _curve(9, 2, at=100)]
    assert _why(stopper, own, later) == ""


def test_a_second_rung_is_one_too() -> None:
    stopper = _stopper("asha", factor=3)
    others = [_curve(9, 5, 5, 1), _curve(9, 6, 6, 2), _curve(9, 7, 7, 3)]
    own = _curve(9, 1, 1, 8, at=50)
    assert "at step 3" in _why(stopper, own, others)


def test_brackets_begin_later_and_have_fewer_trials() -> None:
    stopper = _stopper("hyperband", max_steps=27)
    brackets = [bracket_of(stopper, number) for number in range(1000)]
    assert sorted(set(brackets)) == [0, 1, 2]
    counts = [brackets.count(bracket) for bracket in range(3)]
    assert counts == pytest.approx([545, 273, 182], abs=10), "9/3, 3/2 and 1/1 of their sum"
    assert len(set(brackets[:6])) > 1, "they take turns"
    assert bracket_of(_stopper("asha"), 7) == 0


def test_in_a_later_bracket_a_slow_beginning_is_forgiven() -> None:
    stopper = _stopper("hyperband", max_steps=27)
    others = [_curve(9, 1, 1, 1), _curve(9, 2, 2, 2), _curve(9, 2, 2, 2)]
    own = _curve(9, 5, 5, 0.5, at=50)
    assert "at step 1" in why_stop(stopper, Curves(own, others, others, bracket=0))
    assert why_stop(stopper, Curves(own, others, others, bracket=1)) == ""
    slow = _curve(*[9.0] * 28, at=50)
    fast = [_curve(*[1.0] * 28)]
    assert "at step 9" in why_stop(stopper, Curves(slow, fast, fast, bracket=2))
    assert why_stop(stopper, Curves(slow[27:], fast, fast, bracket=3)) == "", "it is whole"


def test_only_the_best_percentile_goes_on() -> None:
    stopper = _stopper("percentile", percentile=25, min_trials=4)
    others = [_curve(9, value) for value in (1, 2, 3, 4, 5)]
    assert _why(stopper, _curve(9, 2), others) == ""
    assert "worse than the best 25 % of 5 trials" in _why(stopper, _curve(9, 2.1), others)


def test_thresholds_and_values_that_are_no_numbers() -> None:
    stopper = _stopper("threshold", above=10.0, warmup_steps=1)
    assert _why(stopper, _curve(99, 9, 9)) == ""
    assert "at step 2" in _why(stopper, _curve(99, 9, 11))
    assert "no number" in _why(stopper, _curve(99, math.nan))
    assert "no number" in _why(_stopper("asha"), _curve(9, math.nan))
    most = turned(_stopper("threshold", below=0.5))
    assert _why(most, _curve(-0.6)) == ""
    assert _why(most, _curve(-0.4)) != "", "an accuracy of 0.4"


def test_a_plateau_ends() -> None:
    stopper = _stopper("plateau", patience=3, min_change=0.5)
    assert _why(stopper, _curve(9, 8, 7, 6, 5)) == ""
    assert "for 3 steps" in _why(stopper, _curve(9, 8, 7.8, 7.7, 7.6))


_CURVES = st.lists(
    st.lists(st.floats(0, 9) | st.just(math.nan), min_size=0, max_size=30), min_size=1, max_size=8
)


@given(_CURVES, st.sampled_from(["asha", "median", "percentile", "hyperband"]), st.integers(2, 4))
def test_what_is_kept_of_ended_trials_says_the_same(
    values: list[list[float]], name: str, factor: int
) -> None:
    options = {"asha": {"factor": factor}, "hyperband": {"factor": factor, "max_steps": 30}}
    stopper = _stopper(name, **options.get(name, {"min_trials": 1}))
    curves = [_curve(*each, at=7 * number) for number, each in enumerate(values)]
    kept = [condensed(stopper, curve) for curve in curves[1:]]
    assert _why(stopper, curves[0], curves[1:]) == _why(stopper, curves[0], kept)


def test_rungs_spare_most_steps_and_keep_the_best() -> None:
    luck = random.Random(3)
    stopper = _stopper("asha", min_steps=1, factor=3)
    floors = [luck.random() for _ in range(60)]
    ended: list[Curve] = []
    steps = 0
    for number, floor in enumerate(floors):
        curve: list[Point] = []
        for step in range(1, 28):
            curve.append(Point(step, 100 * number + step, floor + 1 / step))
            if _why(stopper, curve, ended):
                break
        ended.append(curve)
        steps += len(curve)
    assert steps < 0.35 * 60 * 27
    whole = [floors[number] for number, curve in enumerate(ended) if len(curve) == 27]
    assert min(whole) == min(floors)


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("magic", {}, "stopper"),
        ("wilcoxon", {}, "stopper"),
        ("hyperband", {}, "stopper_options"),
        ("hyperband", {"max_steps": 4, "min_steps": 4}, "stopper_options.max_steps"),
        ("hyperband", {"max_steps": 1}, "stopper_options.max_steps"),
        ("percentile", {"percentile": 101}, "stopper_options.percentile"),
        ("", {"factor": 2}, "stopper_options"),
        ("asha", {"patience": 2}, "stopper_options.patience"),
        ("asha", {"factor": 1}, "stopper_options.factor"),
        ("asha", {"factor": 2.5}, "stopper_options.factor"),
        ("asha", {"min_steps": True}, "stopper_options.min_steps"),
        ("threshold", {}, "stopper_options"),
        ("threshold", {"above": "1"}, "stopper_options.above"),
        ("threshold", {"above": math.inf}, "stopper_options.above"),
        ("median", {"min_trials": 10**400}, "stopper_options.min_trials"),
    ],
)
def test_what_is_wrong_is_named(name: str, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_stopper(name, options)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("name", "ours"),
    [("medianstop", "median"), ("MedianPruner", "median"), ("ASHAScheduler", "asha"),
     ("SuccessiveHalvingPruner", "asha"), ("PatientPruner", "plateau"),
     ("HyperbandPruner", "hyperband"), ("PercentilePruner", "percentile"), *zip(STOPPERS, STOPPERS, strict=True)],
)  # fmt: skip
def test_names_of_other_tuners_are_understood(name: str, ours: str) -> None:
    needed: dict[str, dict[str, Any]] = {"threshold": {"above": 1.0}, "hyperband": {"max_steps": 9}}
    assert _stopper(name, **needed.get(ours, {})).name == ours


def test_options_of_other_tuners_are_answered_with_ours() -> None:
    for name, option, ours in (
        ("MedianPruner", "n_startup_trials", "min_trials"),
        ("median", "start_step", "warmup_steps"),
        ("asha", "reduction_factor", "factor"),
        ("hyperband", "max_resource", "max_steps"),
    ):
        with pytest.raises(InvalidRequest, match=f"did you mean {ours}"):
            parse_stopper(name, {option: 2})
    with pytest.raises(InvalidRequest) as refused:
        parse_stopper("plateau", {"n_startup_trials": 2})
    assert "did you mean" not in str(refused.value)


def test_options_are_shown_as_they_are_in_force() -> None:
    assert options_of(_stopper("asha", factor=3)) == {"min_steps": 1, "factor": 3}
    assert parse_stopper("none", {}) is None


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_a_rule_with_rungs_says_nothing_else_between_two_of_them(name: str) -> None:
    options = {"min_steps": 2, "factor": 3} | ({"max_steps": 60} if name == "hyperband" else {})
    stopper = parse_stopper(name, options)
    assert stopper is not None
    luck = random.Random(1)
    for trial in range(20):
        others = [
            [Point(step, luck.randrange(100), luck.random()) for step in range(1, 60)]
            for _ in range(trial)
        ]
        steps = sorted(luck.sample(range(-5, 80), 30))
        own = [Point(step, 50, luck.random()) for step in steps]
        for count in range(1, len(own) + 1):
            before = own[count - 2].step if count > 1 else None
            reason, earlier = (
                why_stop(stopper, Curves(own[:part], others, others)) for part in (count, count - 1)
            )
            if not says_more(stopper, before, own[count - 1].step):
                assert reason == earlier
