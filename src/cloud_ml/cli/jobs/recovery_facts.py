"""What a job goes on from and what its failures have cost, as ``jobs describe`` says it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cloud_ml.cli.display import figures

if TYPE_CHECKING:
    from cloud_ml.models.jobs.job import JobEvent, JobRecoveries


_GIVEN = "RestoreFrom"


def find_checkpoint_given(events: Iterable[JobEvent]) -> str:
    """The checkpoint that a new job finds to go on from, and how; empty if there is none."""
    return next((event.message for event in events if event.reason == _GIVEN), "")


def recovery_facts(recoveries: JobRecoveries | None) -> dict[str, str]:
    """The work that was lost and the time that recovery took: the last time, and in sum."""
    if recoveries is None:
        return {}
    last, count = recoveries.last, recoveries.count
    return {
        "Work lost": _format_durations(last.lost_work_s, recoveries.lost_work_s, count),
        "Time to recover": _format_durations(last.recovery_s, recoveries.recovery_s, count),
    }


def _format_durations(last: float | None, total: float, count: int) -> str:
    """Such as ``40.0 s the last time, 3 m 20 s in 4 restarts``."""
    if last is None:
        return f"{figures.span(total)} in {count} restarts" if total else ""
    last_span = figures.span(last)
    return (
        last_span
        if count == 1
        else f"{last_span} the last time, {figures.span(total)} in {count} restarts"
    )
