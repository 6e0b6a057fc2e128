"""Notes what the failures of a workload have cost, from one look at it to the next. Pure."""

from __future__ import annotations

from datetime import datetime

from cloud_ml.domain.observed import GangState, ObservedGang, ObservedProcess
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.recovery import GangFailure, Recoveries, lost_work_s
from cloud_ml.domain.workloads.spec import WorkloadSpec


def observe_recoveries(status: WorkloadStatus, gang: ObservedGang | None) -> Recoveries:
    """The recoveries, with those that this look at the current attempt shows."""
    if gang is None or status.phase.terminal:
        return status.recoveries
    known = status.recoveries.with_tasks(gang.attempt, gang.recoveries)
    started = min((one.started_at for one in gang.processes if one.started_at), default=None)
    if known.failure is None or started is None:
        return known
    return known.running_again(started, _start_stages(status, gang))


def with_failure(
    workload: WorkloadSpec,
    status: WorkloadStatus,
    gang: ObservedGang,
    decisive: ObservedProcess | None,
    now: datetime,
) -> Recoveries:
    """The recoveries after an attempt has failed that another one follows. ``decisive`` is the
    process that decided it. A service has no work that it could lose.
    """
    reason = gang.reason or Reason.NODE_LOST
    if workload.serves or reason is Reason.COMPLETED:
        return status.recoveries
    died_at = decisive.finished_at if decisive else None
    failure = GangFailure(
        decisive.role if decisive else "",
        reason.value,
        died_at or now,
        _lost_s(workload, status, gang, died_at),
        _end_stages(gang, died_at, now),
    )
    return status.recoveries.after_failure(failure)


def _lost_s(
    workload: WorkloadSpec, status: WorkloadStatus, gang: ObservedGang, died_at: datetime | None
) -> float | None:
    """Of an array nothing is told: what has completed is kept, and each of the others has its own.
    When a supervisor or a machine is lost, nobody knows when the work ended.
    """
    if workload.is_array or gang.state is GangState.LOST:
        return None
    first = min((one.started_at for one in gang.processes if one.started_at), default=None)
    return lost_work_s(status.started_at or first, died_at, gang.checkpoint)


def _end_stages(gang: ObservedGang, died_at: datetime | None, now: datetime) -> dict[str, float]:
    gone_at = gang.stages.get("ended")
    stages = {} if gone_at is None else {"detect": _seconds(gone_at, now)}
    if gone_at is not None and died_at is not None:
        stages["end"] = _seconds(died_at, gone_at)
    return stages


def _start_stages(status: WorkloadStatus, gang: ObservedGang) -> dict[str, float]:
    staged_at, started_at = gang.stages.get("environment"), gang.stages.get("started")
    if staged_at is None or started_at is None or status.starting_at is None:
        return {}
    return {
        "stage": _seconds(status.starting_at, staged_at),
        "start": _seconds(staged_at, started_at),
    }


def _seconds(begin: datetime, end: datetime) -> float:
    return max(0.0, (end - begin).total_seconds())
