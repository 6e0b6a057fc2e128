from __future__ import annotations

import pytest

from cloud_ml.sdk.retries import (
    AttemptFailure,
    RetryPolicy,
    delay_before_retry,
    is_repeatable,
    parse_retry_after,
)

POLICY = RetryPolicy(attempts=4, first_s=1.0, longest_s=3.0, patience_s=10.0)


@pytest.mark.parametrize(
    ("method", "key", "repeatable"),
    [
        ("GET", None, True),
        ("HEAD", None, True),
        ("PUT", None, False),
        ("POST", None, False),
        ("DELETE", None, False),
        ("POST", "k", True),
        ("DELETE", "k", True),
    ],
)
def test_what_may_be_sent_again(method: str, key: str | None, repeatable: bool) -> None:
    assert is_repeatable(method, idempotency_key=key) is repeatable


@pytest.mark.parametrize(
    ("trouble", "repeatable", "attempt", "retry_after", "delay"),
    [
        (AttemptFailure.UNSENT, True, 1, None, 1.0),
        (AttemptFailure.UNSENT, False, 1, None, 1.0),
        (AttemptFailure.LOST, True, 2, None, 2.0),
        (AttemptFailure.LOST, False, 1, None, None),
        (AttemptFailure.BUSY, True, 3, None, 3.0),
        (AttemptFailure.BUSY, False, 1, None, None),
        (AttemptFailure.BUSY, True, 1, 7.0, 7.0),
        (AttemptFailure.BUSY, True, 1, 0.0, 0.0),
        (AttemptFailure.BUSY, True, 1, 11.0, None),
        (AttemptFailure.LOST, True, 4, None, None),
        (AttemptFailure.UNSENT, True, 4, None, None),
        (AttemptFailure.FINAL, True, 1, None, None),
    ],
)
def test_when_to_try_again(
    trouble: AttemptFailure,
    repeatable: bool,
    attempt: int,
    retry_after: float | None,
    delay: float | None,
) -> None:
    found = delay_before_retry(
        POLICY, trouble, repeatable=repeatable, attempt=attempt, luck=1.0, retry_after_s=retry_after
    )
    assert found == delay


def test_delays_grow_stay_bounded_and_are_spread() -> None:
    assert [POLICY.backoff(attempt, 1.0) for attempt in (1, 2, 3, 4)] == [1.0, 2.0, 3.0, 3.0]
    assert POLICY.backoff(2, 0.0) == 1.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        (" 10 ", 10.0),
        ("-1", None),
        ("soon", None),
        ("Fri, 31 Jan 2026 12:00:00 GMT", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text) == seconds
