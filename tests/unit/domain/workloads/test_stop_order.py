"""Who of a gang is told to stop, and when."""

from __future__ import annotations

import pytest

from cloud_ml.domain.workloads.stop_order import last_call_s, next_to_stop

ALL = ["client-0", "scheduler-0", "worker-0"]
SCHEDULER = ("scheduler-0",)


@pytest.mark.parametrize(
    ("living", "last", "short", "expected"),
    [
        (ALL, (), False, ALL),
        (ALL, SCHEDULER, False, ["client-0", "worker-0"]),
        (ALL, SCHEDULER, True, ALL),
        (["scheduler-0"], SCHEDULER, False, ["scheduler-0"]),
        ([], SCHEDULER, False, []),
        (ALL, ALL, False, ALL),
        (ALL, ("ps-7",), False, ALL),
    ],
)
def test_the_last_are_told_when_the_others_have_ended(
    living: list[str], last: tuple[str, ...], short: bool, expected: list[str]
) -> None:
    assert next_to_stop(living, last, time_is_short=short) == expected


@pytest.mark.parametrize(("grace_s", "left_s"), [(10.0, 2.5), (0.4, 0.1), (3600.0, 5.0)])
def test_the_last_have_some_of_the_grace_time(grace_s: float, left_s: float) -> None:
    assert last_call_s(grace_s) == pytest.approx(left_s)
