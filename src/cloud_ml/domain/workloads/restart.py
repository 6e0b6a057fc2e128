"""Whether a failed attempt is followed by another, and when."""

from __future__ import annotations

from datetime import datetime, timedelta

from cloud_ml.domain.workloads.reasons import NEVER_RETRIED, Reason
from cloud_ml.domain.workloads.spec import WorkloadSpec


def next_start(
    workload: WorkloadSpec, attempt: int, reason: Reason, now: datetime
) -> datetime | None:
    """When the attempt after ``attempt`` may start, or ``None`` when there will be none.

    Failures that would only repeat (a package that does not install) end the job at once.
    """
    policy = workload.retry
    if _would_repeat(workload, reason) or attempt > policy.max_retries:
        return None
    return now + timedelta(seconds=policy.delay_s(attempt))


def _would_repeat(workload: WorkloadSpec, reason: Reason) -> bool:
    """Whether another attempt would only meet the cause again.

    A program computes the same and needs the same memory again. What a service needs depends on
    the calls that it gets.
    """
    return reason in NEVER_RETRIED or (reason is Reason.OUT_OF_MEMORY and not workload.serves)
