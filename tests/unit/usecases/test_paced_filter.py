"""Patterns of a tenant are compared within a bound of processor time, and others have the
interpreter in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.usecases.jobs.paced_filter import PacedFilter


class Time:
    """A clock of processor time that goes on by ``step`` at each look, and what was slept."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step
        self.slept: list[float] = []

    def clock(self) -> float:
        self.now += self.step
        return self.now


def paced(time: Time, patterns: Sequence[str], limit_s: float = 0.0) -> PacedFilter:
    return PacedFilter(patterns, limit_s=limit_s, clock=time.clock, sleep=time.slept.append)


def test_what_takes_little_time_has_no_pause() -> None:
    time = Time(0.0001)
    output_filter = paced(time, ["*.pt"])
    assert [output_filter.keeps(b"%d.pt" % number) for number in range(100)] == [True] * 100
    assert time.slept == []


def test_what_takes_long_pauses_for_nine_times_as_long() -> None:
    time = Time(0.003)
    output_filter = paced(time, ["*.pt"])
    for number in range(1000):
        output_filter.keeps(b"%d.pt" % number)
    assert 8 < sum(time.slept) / (1000 * time.step) < 9.5
    assert max(time.slept) < 0.06


def test_a_file_with_many_slow_patterns_pauses_between_them() -> None:
    time = Time(0.003)
    output_filter = paced(time, [f"a*b*c*{number}" for number in range(200)])
    assert output_filter.keeps(b"a") is False
    assert len(time.slept) > 100
    assert max(time.slept) < 0.06


def test_beyond_the_limit_nothing_is_compared() -> None:
    time = Time(0.01)
    output_filter = paced(time, ["*.pt"], limit_s=0.055)
    answers = [output_filter.keeps(b"a.pt") for _ in range(10)]
    assert answers == [True] * 6 + [None] * 4
    assert output_filter.enters(b"folder")
