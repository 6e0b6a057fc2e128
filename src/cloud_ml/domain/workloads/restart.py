"""Whether a failed attempt is followed by another, and when."""

from __future__ import annotations

from datetime import datetime, timedelta

from cloud_ml.domain.workloads.reasons import NEVER_RETRIED, Reason
from cloud_ml.domain.workloads.spec import RetryPolicy


def next_start(policy: RetryPolicy, attempt: int, reason: Reason, now: datetime) -> datetime | None:
    """When the attempt after ``attempt`` may start, or ``None`` when there will be none.

    Failures that would only repeat (a package that does not install) end the job at once.
    """
    if reason in NEVER_RETRIED or attempt > policy.max_retries:
        return None
    return now + timedelta(seconds=policy.delay_s(attempt))
