"""Jobs that are cancelled, deleted or paused: from the first signal until no process is left."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from cloud_ml.domain.observed import ObservedGang
from cloud_ml.domain.records import Decision, Event
from cloud_ml.domain.workloads import attempt_events
from cloud_ml.domain.workloads.actions import StopGang
from cloud_ml.domain.workloads.end import finished_at
from cloud_ml.domain.workloads.findings import with_findings
from cloud_ml.domain.workloads.pausing import after_giving_way
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadDecision, WorkloadRecord
from cloud_ml.domain.workloads.rules import Rules, next_look
from cloud_ml.domain.workloads.spec import Desired


def stop(
    job: WorkloadRecord, gang: ObservedGang | None, now: datetime, rules: Rules
) -> WorkloadDecision:
    """End a job that somebody cancels, deletes or pauses, in whatever phase it is."""
    status = job.status
    reason = Reason.DELETED if job.delete_requested_at else Reason.CANCELLED
    word = "deleted" if job.delete_requested_at else "cancelled"
    grace_s = rules.grace_s(job.spec.workload)
    if status.phase in (Phase.SAVED, Phase.PAUSED, Phase.QUEUED):  # nothing of it lives
        when = "while it was paused" if status.phase is Phase.PAUSED else "before it started"
        return Decision(
            status=status.moved(
                Phase.STOPPED, finished_at=now, reason=reason, message=f"{word} {when}"
            ),
            events=[Event(now, reason, f"{word} {when}")],
        )
    if status.phase is not Phase.STOPPING:
        return Decision(
            status=status.moved(
                Phase.STOPPING, reason=Reason.STOPPING, message=f"{word}; waiting for the processes"
            ),
            events=[
                Event(now, Reason.STOPPING, f"{word}; its processes have {grace_s:g} s to end")
            ],
        )
    # Do this even before an attempt is claimed: the tombstone keeps it from starting.
    if gang is None or not gang.state.over:
        return Decision(
            actions=[StopGang(status.attempt, grace_s, _why_it_stops(job))],
            requeue_at=next_look(now, grace_s),
        )
    if not job.delete_requested_at and job.spec.workload.desired is not Desired.STOPPED:
        return after_giving_way(job, gang, now)
    ended = with_findings(status.moved(Phase.STOPPED), gang)
    return Decision(
        status=replace(
            ended, finished_at=finished_at(job, ended, gang, now), reason=reason, message=word
        ),
        events=[
            *attempt_events.ends(status, gang, now),
            *attempt_events.unsaved_files(job, gang, now),
            Event(now, reason, f"{word}; every process is gone"),
        ],
    )


def _why_it_stops(job: WorkloadRecord) -> Reason:
    """What the tasks are told. A job that was resumed while it was being paused goes on later."""
    workload = job.spec.workload
    if job.delete_requested_at:
        return Reason.DELETED
    if workload.desired is Desired.STOPPED:
        return Reason.CANCELLED
    if workload.desired is not Desired.RUN:
        return Reason.PAUSED
    if job.status.attempt <= workload.restart_after:
        return Reason.RESTARTING
    return Reason.RESIZED if job.status.next_world else Reason.PAUSED
