from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from cloud_ml.domain.comparison.facts import ComparedValue
from cloud_ml.domain.comparison.ranking import Fact
from cloud_ml.domain.comparison.verdicts import RunResult, judge, sentence
from cloud_ml.domain.metrics.points import Point

NEAR = "within 1e-06: the largest difference is 1e-07 (loss of master-0 at step 0)"
KEY = ("master-0", "loss", "report")


def result(
    values: Sequence[float] = (),
    files: Mapping[str, str] | None = None,
    facts: Mapping[Fact, str] | None = None,
) -> RunResult:
    points = [Point(step, 1000 * step, value) for step, value in enumerate(values)]
    known = {fact: ComparedValue(value, value) for fact, value in (facts or {}).items()}
    return RunResult({KEY: points} if values else {}, files or {}, known)


SAME = result([1.0, math.nan, math.inf], {"a": "d1"})


def words(first: RunResult, again: RunResult, changed: Sequence[str] = (), **more: object) -> str:
    verdict, found = judge(first, again, changed, 1e-6, **more)  # type: ignore[arg-type]
    return sentence(verdict, found, 1e-6)


def test_equal_series_and_files_are_identical_with_nan_and_infinity() -> None:
    later = RunResult(
        {KEY: [point._replace(at=point.at + 5) for point in SAME.series[KEY]]}, SAME.files
    )
    assert words(SAME, later) == "identical: 1 series and 1 file"


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (result([1.0 + 1e-7], {"a": "d1"}), NEAR),
        (result([1.0], {"a": "d2"}), "within 1e-06: metrics are equal; 1 file differs"),
        (result([1.1], {"a": "d1"}), "differs because no reason is known"),
        (result([1.0, 2.0], {"a": "d1"}), "differs because no reason is known"),
        (result([], {"a": "d1"}), "differs because no reason is known"),
        (result([math.nan], {"a": "d1"}), "differs because no reason is known"),
    ],
)  # fmt: skip
def test_what_is_near_is_within(again: RunResult, expected: str) -> None:
    assert words(result([1.0], {"a": "d1"}), again) == expected


def test_files_alone_are_never_near() -> None:
    assert words(result([], {"a": "d1"}), result([], {"a": "d2"})).startswith("differs")
    assert words(result([], {"a": "d1"}), result([], {})).startswith("differs")


def test_large_values_are_compared_by_ratio() -> None:
    assert words(result([1e9]), result([1e9 + 100])).startswith("within")
    assert words(result([1e9]), result([1e9 + 1e5])).startswith("differs")


def test_a_known_change_is_the_reason_and_no_third_run_is_needed() -> None:
    first = result([1.0], facts={("package", "numpy"): "1", ("code", "files"): "c1"})
    again = result([2.0], facts={("package", "numpy"): "2", ("code", "files"): "c2"})
    verdict, _ = judge(first, again, ["fds://b/x changed"], 1e-6)
    assert not verdict.ask_again
    assert verdict.because == [
        "fds://b/x changed",
        "code files changed: c1, then c2",
        "package numpy changed: 1, then 2",
    ]


def test_what_does_not_matter_is_no_reason() -> None:
    facts = {("attempts", "count"): "1", ("output", "model_path"): "a", ("git", "commit"): "b"}
    other = {fact: value + "x" for fact, value in facts.items()}
    verdict, _ = judge(result([1.0], facts=facts), result([2.0], facts=other), [], 1e-6)
    assert verdict.ask_again


def test_a_third_run_tells_whether_the_code_differs_from_itself() -> None:
    first, again = result([1.0]), result([2.0])
    assert "differs from itself when it runs twice (loss of master-0 at step 0)" in words(
        first, again, third=result([3.0])
    )
    assert "ran twice now with the same result" in words(first, again, third=result([2.0]))


def test_a_run_that_failed_says_why() -> None:
    text = words(result([1.0]), result(), ended="its packages cannot be installed any more: x")
    assert text == "differs because its packages cannot be installed any more: x"


def test_two_runs_that_left_nothing_are_not_called_identical() -> None:
    verdict, found = judge(result(), result(), [], 1e-6)
    assert sentence(verdict, found, 1e-6) == (
        "unknown: neither run has metrics or files to compare"
    )
