"""When a failed attempt is followed by another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloud_ml.domain.workloads.reasons import NEVER_RETRIED, Reason
from cloud_ml.domain.workloads.restart import next_start
from cloud_ml.domain.workloads.spec import Program, RetryPolicy, Role, WorkloadSpec
from support.jobs import NOW

POLICY = RetryPolicy(max_retries=3, first_delay_s=2.0, factor=3.0, longest_delay_s=10.0)
JOB = WorkloadSpec(Program("task", "fds://b/t.zip"), (Role("master"),), retry=POLICY)
SERVICE = replace(JOB, serves=True)


@pytest.mark.parametrize(("attempt", "delay_s"), [(1, 2), (2, 6), (3, 10), (4, None), (100, None)])
def test_delays_grow_to_a_bound_and_retries_end(attempt: int, delay_s: float | None) -> None:
    expected = None if delay_s is None else NOW + timedelta(seconds=delay_s)
    assert next_start(JOB, attempt, Reason.NON_ZERO_EXIT, NOW) == expected


@pytest.mark.parametrize("reason", list(Reason))
def test_what_another_attempt_would_only_meet_again_is_not_tried(reason: Reason) -> None:
    repeats = reason in NEVER_RETRIED or reason is Reason.OUT_OF_MEMORY
    assert (next_start(JOB, 1, reason, NOW) is None) == repeats


@pytest.mark.parametrize("reason", list(Reason))
def test_a_service_without_memory_is_tried_again(reason: Reason) -> None:
    assert (next_start(SERVICE, 1, reason, NOW) is None) == (reason in NEVER_RETRIED)


def test_without_retries_there_is_one_attempt() -> None:
    assert next_start(replace(JOB, retry=RetryPolicy()), 1, Reason.NODE_LOST, NOW) is None


def test_the_hundredth_delay_is_still_a_number() -> None:
    assert RetryPolicy(max_retries=100).delay_s(100) == 300.0
