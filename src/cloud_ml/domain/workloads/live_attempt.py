"""An attempt that the engine starts, runs or finishes: what follows from what it reports."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.records import Decision, Event, EventType
from cloud_ml.domain.workloads import attempt_events
from cloud_ml.domain.workloads.actions import EnsureGang, RestartTask, StopGang
from cloud_ml.domain.workloads.attempt_end import after_attempt
from cloud_ml.domain.workloads.findings import task_statuses, with_findings
from cloud_ml.domain.workloads.memory_growth import MoreMemory
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadDecision, WorkloadRecord
from cloud_ml.domain.workloads.rules import Rules, next_look

_REPEATED = timedelta(seconds=5)
"""How soon a task is asked once more to start again: an engine of an older version never does."""
_NO_TRACE = "the engine has no trace of the attempt any more"


def follow_attempt(
    job: WorkloadRecord,
    gang: ObservedGang | None,
    now: datetime,
    rules: Rules,
    more_memory: MoreMemory | None,
) -> WorkloadDecision:
    """Follow an attempt that starts, runs or finishes."""
    status = job.status
    starts = status.phase is Phase.STARTING
    if starts and gang is not None and gang.state is GangState.WAITING:
        return _waiting_for_engine(status, gang, now)
    no_place_before = status.reason == Reason.WAITING_FOR_ENGINE
    if no_place_before and (gang is None or gang.state is GangState.STAGING):
        return _leave_queue(status, now)
    if gang is None and starts:
        return _nothing_made(status, now, rules)
    # The attempt has run, but the engine does not know it. The same attempt must never start
    # twice.
    if gang is None:
        gang = ObservedGang(
            job.key.uid, status.attempt, GangState.LOST, Reason.NODE_LOST, _NO_TRACE
        )
    if gang.state.over:
        return after_attempt(job, gang, now, more_memory)
    if gang.state is GangState.STAGING:
        return _staging(status, gang, now, rules)
    phase = Phase.FINISHING if gang.state is GangState.FINISHING else Phase.RUNNING
    # A job never goes back from Finishing to Running.
    if phase is status.phase or status.phase is Phase.FINISHING:
        news = _restarted_tasks(status, gang, now)
        return news if news.status is not None else _requested_restarts(job, gang, now, rules)
    return _begin_phase(status, gang, phase, now)


def _begin_phase(
    status: WorkloadStatus, gang: ObservedGang, phase: Phase, now: datetime
) -> WorkloadDecision:
    """The processes run, or end: with what is told of it."""
    started = min((p.started_at for p in gang.processes if p.started_at), default=now)
    moved = status.moved(
        phase, started_at=status.started_at or started, reason=Reason.STARTED, message=""
    )
    # At Finishing, perhaps nobody has looked since the attempt began.
    sentence = attempt_events.started_sentence(gang, over=phase is Phase.FINISHING)
    begun = [*attempt_events.notices(gang, now), Event(now, Reason.STARTED, sentence)]
    has_begun = status.phase is Phase.RUNNING
    events = [*(() if has_begun else begun), *attempt_events.ends(status, gang, now)]
    return Decision(status=with_findings(moved, gang), events=events)


def _waiting_for_engine(
    status: WorkloadStatus, gang: ObservedGang, now: datetime
) -> WorkloadDecision:
    """The engine has a queue of its own: say why, as often as that changes. The start limit does
    not run meanwhile.
    """
    reason, message = Reason.WAITING_FOR_ENGINE, gang.message
    if (status.reason, status.message) == (reason, message):
        return Decision()
    events = [] if status.reason == reason else [Event(now, reason, message, EventType.WARNING)]
    return Decision(replace(status, reason=reason, message=message), events=events)


def _leave_queue(status: WorkloadStatus, now: datetime) -> WorkloadDecision:
    """The gang has left the engine's queue: the start limit runs from here on."""
    return Decision(replace(status, reason=Reason.STARTING, message="", starting_at=now))


def _restarted_tasks(status: WorkloadStatus, gang: ObservedGang, now: datetime) -> WorkloadDecision:
    """Note tasks that the engine has started again since the last look, or that have failed for
    good, and say why.
    """
    news = attempt_events.ends(status, gang, now)
    return (
        Decision(replace(status, tasks=task_statuses(status, gang)), events=news)
        if news
        else Decision()
    )


def _requested_restarts(
    job: WorkloadRecord, gang: ObservedGang, now: datetime, rules: Rules
) -> WorkloadDecision:
    """Have tasks started again that somebody wants to start again, unless that is under way."""
    if gang.state is not GangState.RUNNING:
        return Decision()
    grace_s = rules.grace_s(job.spec.workload)
    live = {one.name: one for one in gang.processes if one.running or one.restarting}
    actions = [
        RestartTask(gang.attempt, one.task, one.number, grace_s)
        for one in job.spec.workload.requested_restarts
        if one.attempt == gang.attempt
        and one.task in live
        and live[one.task].requested_restarts < one.number
    ]
    return Decision(actions=actions, requeue_at=now + _REPEATED) if actions else Decision()


def _nothing_made(status: WorkloadStatus, now: datetime, rules: Rules) -> WorkloadDecision:
    """Hand the attempt over; past the limit, put a tombstone in its place, so that it cannot
    start any more.
    """
    if now < _start_deadline(status, now, rules):
        return Decision(actions=[EnsureGang(status.attempt)], requeue_at=now + timedelta(seconds=5))
    return Decision(
        actions=[StopGang(status.attempt, 0.0)], requeue_at=next_look(now, rules.stop_grace_s)
    )


def _start_deadline(status: WorkloadStatus, now: datetime, rules: Rules) -> datetime:
    return (status.starting_at or now) + timedelta(seconds=rules.start_timeout_s)


def _staging(
    status: WorkloadStatus, gang: ObservedGang, now: datetime, rules: Rules
) -> WorkloadDecision:
    deadline = _start_deadline(status, now, rules)
    if now < deadline:
        return Decision(requeue_at=deadline)
    return Decision(
        actions=[StopGang(gang.attempt, 0.0)], requeue_at=next_look(now, rules.stop_grace_s)
    )
