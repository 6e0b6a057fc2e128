"""What follows when an attempt ends in favour of a pause, or of another attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from cloud_ml.domain.observed import ObservedGang
from cloud_ml.domain.records import Decision, Event
from cloud_ml.domain.workloads import attempt_events, resizing
from cloud_ml.domain.workloads.attempt_end import about_attempt, after_attempt, of_next_attempt
from cloud_ml.domain.workloads.exits import RestartPolicy
from cloud_ml.domain.workloads.findings import task_statuses
from cloud_ml.domain.workloads.gangs import count_restarts
from cloud_ml.domain.workloads.live_attempt import follow_attempt
from cloud_ml.domain.workloads.memory_growth import MoreMemory
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadDecision, WorkloadRecord
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import Desired


def is_to_restart(job: WorkloadRecord) -> bool:
    """Whether somebody wants another attempt in the place of the one that lives."""
    lives = job.status.phase in (Phase.STARTING, Phase.RUNNING, Phase.FINISHING)
    return lives and job.status.attempt <= job.spec.workload.restart_after


def give_way(
    job: WorkloadRecord,
    gang: ObservedGang | None,
    now: datetime,
    rules: Rules,
    more_memory: MoreMemory | None,
) -> WorkloadDecision:
    """End an attempt in favour of a pause or of another attempt. A job that has just ended by
    itself has its own end.
    """
    status = job.status
    if status.phase in (Phase.QUEUED, Phase.RESTARTING):  # nothing of it lives
        return Decision(
            status=_pause_status(status),
            events=[Event(now, Reason.PAUSED, "the job is paused")],
        )
    if gang is not None and gang.state.over:
        return follow_attempt(job, gang, now, rules, more_memory)
    grace_s = rules.grace_s(job.spec.workload)
    pauses = job.spec.workload.desired is Desired.PAUSED
    doing, done = ("pausing", "paused") if pauses else ("restarting", "restarted")
    return Decision(
        status=status.moved(
            Phase.STOPPING, reason=Reason.STOPPING, message=f"{doing}; waiting for the processes"
        ),
        events=[
            Event(now, Reason.STOPPING, f"to be {done}; its processes have {grace_s:g} s to end")
        ],
    )


def after_giving_way(job: WorkloadRecord, gang: ObservedGang, now: datetime) -> WorkloadDecision:
    """Nothing of the attempt lives any more. Meanwhile somebody may have resumed the job."""
    if gang.succeeded and job.spec.workload.retry.exits.policy is not RestartPolicy.ALWAYS:
        return after_attempt(job, gang, now)
    workload = job.spec.workload
    news = attempt_events.ends(job.status, gang, now)
    status = replace(
        job.status,
        tasks=task_statuses(job.status, gang),
        task_restarts_used=job.status.task_restarts_used + count_restarts(gang.processes),
    )
    if workload.desired is Desired.PAUSED:
        following = of_next_attempt(_pause_status(status), workload)
        event = Event(now, Reason.PAUSED, "the job is paused; every process is gone")
    elif status.attempt <= workload.restart_after:
        moved = status.moved(Phase.RESTARTING, not_before=now, reason=Reason.RESTARTING, message="")
        following = of_next_attempt(moved, workload)
        sentence = f"attempt {following.attempt} follows, as requested"
        event = Event(now, Reason.RESTARTING, f"{sentence}{about_attempt(job.status, gang, now)}")
    elif status.next_world:
        moved = resizing.restarting(status, now)
        following = of_next_attempt(moved, workload)
        sentence = f"attempt {following.attempt} follows, {moved.message}"
        event = Event(now, Reason.RESTARTING, f"{sentence}{about_attempt(job.status, gang, now)}")
    else:
        moved = status.moved(Phase.QUEUED, queued_at=now, reason=Reason.SUBMITTED, message="")
        following = of_next_attempt(moved, workload)
        event = Event(now, Reason.SUBMITTED, "the job was resumed and is queued")
    return Decision(status=following, events=[*news, event])


def _pause_status(status: WorkloadStatus) -> WorkloadStatus:
    return status.moved(
        Phase.PAUSED, reason=Reason.PAUSED, message="", not_before=None, ports=(), next_world={}
    )
