"""The heart of the platform: what follows from one look at a job.

Reads top to bottom like the lifecycle. Pure and total: any record, any observation and any time
give a decision, and giving it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.records import Decision, Event, EventType
from cloud_ml.domain.workloads import attempt_events, failover, resizing
from cloud_ml.domain.workloads.actions import (
    EnsureGang,
    Forget,
    RestartTask,
    StopGang,
)
from cloud_ml.domain.workloads.attempt_end import about_attempt, after_attempt, of_next_attempt
from cloud_ml.domain.workloads.end import finished_at
from cloud_ml.domain.workloads.exits import RestartPolicy
from cloud_ml.domain.workloads.findings import task_statuses, with_findings
from cloud_ml.domain.workloads.gangs import count_restarts
from cloud_ml.domain.workloads.memory_growth import MoreMemory
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import WAITS, Reason
from cloud_ml.domain.workloads.record import WorkloadDecision, WorkloadRecord
from cloud_ml.domain.workloads.resizing import Growth
from cloud_ml.domain.workloads.spec import Desired, WorkloadSpec
from cloud_ml.domain.workloads.worlds import NO_WORLD, World

_REPEATED = timedelta(seconds=5)
"""How soon a task is asked once more to start again: an engine of an older version never does."""
_NO_TRACE = "the engine has no trace of the attempt any more"


@dataclass(frozen=True)
class Rules:
    """What the operator has set about the life of jobs. Times in seconds."""

    stop_grace_s: float = 10.0
    start_timeout_s: float = 3600.0

    def grace_s(self, spec: WorkloadSpec) -> float:
        """The time that a job has between SIGTERM and SIGKILL."""
        return self.stop_grace_s if spec.grace_s is None else spec.grace_s


@dataclass(frozen=True)
class WaitsFor:
    """Why a queued job does not start although it is its turn: one of ``WAITS``, and a sentence."""

    reason: Reason
    message: str


def decide(
    job: WorkloadRecord,
    observed: Sequence[ObservedGang],
    now: datetime,
    *,
    has_slot: bool,
    rules: Rules,
    waits_for: WaitsFor | None = None,
    ports: tuple[int, ...] = (),
    world: World = NO_WORLD,
    growth: Growth | None = None,
    more_memory: MoreMemory | None = None,
    has_room: bool = True,
) -> WorkloadDecision:
    """Decide the next step of a job.

    Args:
        job: The record as committed.
        observed: Every gang of the job that the engine knows, in any order.
        now: The time of the look.
        has_slot: Whether a queued job may start; ignored in every other phase.
        rules: The operator's limits.
        waits_for: What keeps a queued job from starting although it is its turn.
        ports: Those that an attempt which begins gets for its tasks.
        world: How many tasks such an attempt has, if the job is elastic.
        growth: That there is room for more tasks of a running job.
        more_memory: What the next attempt would have, if this one ended for lack of memory.
        has_room: Whether the memory that a job has by now is free; ignored unless it is
            ``Restarting``.
    """
    recoveries = failover.observe_recoveries(job.status, _current(job, observed))
    news = recoveries != job.status.recoveries
    if news:
        job = replace(job, status=replace(job.status, recoveries=recoveries))
    decision = _next_step(
        job,
        observed,
        now,
        has_slot=has_slot,
        rules=rules,
        waits_for=waits_for,
        ports=ports,
        world=world,
        more_memory=more_memory,
        has_room=has_room,
    )
    if growth is not None and decision == Decision() and job.status.phase is Phase.RUNNING:
        decision = resizing.grow(job, growth, now, rules.grace_s(job.spec.workload))
    # Store recoveries with the next change of the status, or alone if nothing else is due.
    if news and decision.status is None and not decision.actions and job.status.phase.runs:
        return Decision(status=job.status)
    return decision


def _current(job: WorkloadRecord, observed: Sequence[ObservedGang]) -> ObservedGang | None:
    attempt = job.status.attempt
    for gang in observed:
        if gang.attempt == attempt:
            return gang
    return None


def _next_step(
    job: WorkloadRecord,
    observed: Sequence[ObservedGang],
    now: datetime,
    *,
    has_slot: bool,
    rules: Rules,
    waits_for: WaitsFor | None,
    ports: tuple[int, ...],
    world: World,
    more_memory: MoreMemory | None,
    has_room: bool,
) -> WorkloadDecision:
    status = job.status
    stray = next((g for g in observed if not g.state.over and g.attempt != status.attempt), None)
    if stray is not None:  # an earlier attempt still lives: nothing else happens until it is gone
        grace_s = rules.grace_s(job.spec.workload)
        return Decision(actions=[StopGang(stray.attempt, grace_s)], requeue_at=_soon(now, grace_s))
    gang = _current(job, observed)
    if status.phase.terminal:
        return _after_the_end(job, gang, rules, now)
    if (
        # Deleting or stopping takes precedence over pausing, and pausing over starting.
        job.delete_requested_at
        or job.spec.workload.desired is Desired.STOPPED
        or status.phase is Phase.STOPPING
    ):
        return _stop(job, gang, now, rules)
    if status.phase in (Phase.SAVED, Phase.PAUSED):
        return _at_rest(job, now)
    if job.spec.workload.desired is Desired.PAUSED or _is_to_restart(job):
        return _give_way(job, gang, now, rules, more_memory)
    if status.phase is Phase.QUEUED:
        if not has_slot:  # the slot that becomes free wakes the queue
            return _waiting(status, now, waits_for)
        return _starting(job, now, ports, world)
    if status.phase is Phase.RESTARTING:
        if not starts_again(job, now):
            return Decision(requeue_at=status.not_before)
        if not has_room:
            return _queued_for_memory(job, now)
        return _starting(job, now, ports, world)
    return _live(job, gang, now, rules, more_memory)


def _after_the_end(
    job: WorkloadRecord, gang: ObservedGang | None, rules: Rules, now: datetime
) -> WorkloadDecision:
    if gang is not None and not gang.state.over:
        return Decision(
            actions=[StopGang(gang.attempt, 0.0)], requeue_at=_soon(now, rules.stop_grace_s)
        )
    return Decision(actions=[Forget()]) if job.delete_requested_at else Decision()


def _at_rest(job: WorkloadRecord, now: datetime) -> WorkloadDecision:
    """Saved or paused: until somebody wants it to run."""
    if job.spec.workload.desired is not Desired.RUN:
        return Decision()
    saved = job.status.phase is Phase.SAVED
    word = "the saved job was started" if saved else "the paused job was resumed"
    queued = job.status.moved(Phase.QUEUED, queued_at=now, reason=Reason.SUBMITTED, message="")
    return Decision(
        status=replace(queued, recoveries=queued.recoveries.resumed(now)),
        events=[Event(now, Reason.SUBMITTED, f"{word} and is queued")],
    )


def _queued_for_memory(job: WorkloadRecord, now: datetime) -> WorkloadDecision:
    """Give up the place: two jobs that each wait for more memory, and keep what they have, might
    wait for each other for ever.
    """
    queued = job.status.moved(
        Phase.QUEUED, queued_at=now, reason=Reason.SUBMITTED, message="", not_before=None, ports=()
    )
    said = f"attempt {job.status.attempt} needs more memory, and is queued until it is free"
    return Decision(status=queued, events=[Event(now, Reason.SUBMITTED, said)])


def _is_to_restart(job: WorkloadRecord) -> bool:
    """Whether somebody wants another attempt in the place of the one that lives."""
    lives = job.status.phase in (Phase.STARTING, Phase.RUNNING, Phase.FINISHING)
    return lives and job.status.attempt <= job.spec.workload.restart_after


def _give_way(
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
        return _live(job, gang, now, rules, more_memory)
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


def _after_giving_way(job: WorkloadRecord, gang: ObservedGang, now: datetime) -> WorkloadDecision:
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
        said = Event(now, Reason.PAUSED, "the job is paused; every process is gone")
    elif status.attempt <= workload.restart_after:
        moved = status.moved(Phase.RESTARTING, not_before=now, reason=Reason.RESTARTING, message="")
        following = of_next_attempt(moved, workload)
        sentence = f"attempt {following.attempt} follows, as requested"
        said = Event(now, Reason.RESTARTING, f"{sentence}{about_attempt(job.status, gang, now)}")
    elif status.next_world:
        moved = resizing.restarting(status, now)
        following = of_next_attempt(moved, workload)
        sentence = f"attempt {following.attempt} follows, {moved.message}"
        said = Event(now, Reason.RESTARTING, f"{sentence}{about_attempt(job.status, gang, now)}")
    else:
        moved = status.moved(Phase.QUEUED, queued_at=now, reason=Reason.SUBMITTED, message="")
        following = of_next_attempt(moved, workload)
        said = Event(now, Reason.SUBMITTED, "the job was resumed and is queued")
    return Decision(status=following, events=[*news, said])


def _pause_status(status: WorkloadStatus) -> WorkloadStatus:
    return status.moved(
        Phase.PAUSED, reason=Reason.PAUSED, message="", not_before=None, ports=(), next_world={}
    )


def _waiting(status: WorkloadStatus, now: datetime, waits_for: WaitsFor | None) -> WorkloadDecision:
    """Say once for each reason that a job waits; figures in the sentence are of the last look,
    which are few.
    """
    if waits_for is None:
        waited = status.reason in WAITS
        return (
            Decision(replace(status, reason=Reason.SUBMITTED, message="")) if waited else Decision()
        )
    reason, message = waits_for.reason, waits_for.message
    if (status.reason, status.message) == (reason, message):
        return Decision()
    said = [] if status.reason == reason else [Event(now, reason, message, EventType.WARNING)]
    return Decision(replace(status, reason=reason, message=message), events=said)


def starts_again(job: WorkloadRecord, now: datetime) -> bool:
    """Whether the next attempt of a job that restarts is due, or somebody has asked for it."""
    status = job.status
    due = status.not_before is None or now >= status.not_before
    asked_for = job.spec.workload.restart_after == status.attempt - 1
    waits = status.phase is Phase.RESTARTING and job.spec.workload.desired is not Desired.PAUSED
    return waits and not job.delete_requested_at and (due or asked_for)


def _starting(
    job: WorkloadRecord, now: datetime, ports: tuple[int, ...], world: World
) -> WorkloadDecision:
    """The attempt begins, with a place."""
    status = job.status
    moved = status.moved(
        Phase.STARTING,
        starting_at=now,
        reason=Reason.STARTING,
        message="",
        not_before=None,
        ports=ports,
    )
    with_tasks = resizing.with_tasks(job.spec.workload, world)
    said = Event(now, Reason.STARTING, f"attempt {status.attempt} is starting{with_tasks}")
    return Decision(
        status=resizing.with_world(moved, world, now),
        events=[*resizing.changes(status, world, now), said],
    )


def _stop(
    job: WorkloadRecord, gang: ObservedGang | None, now: datetime, rules: Rules
) -> WorkloadDecision:
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
            requeue_at=_soon(now, grace_s),
        )
    if not job.delete_requested_at and job.spec.workload.desired is not Desired.STOPPED:
        return _after_giving_way(job, gang, now)
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


def _live(
    job: WorkloadRecord,
    gang: ObservedGang | None,
    now: datetime,
    rules: Rules,
    more_memory: MoreMemory | None,
) -> WorkloadDecision:
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
    told = status.phase is Phase.RUNNING
    events = [*(() if told else begun), *attempt_events.ends(status, gang, now)]
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
    said = [] if status.reason == reason else [Event(now, reason, message, EventType.WARNING)]
    return Decision(replace(status, reason=reason, message=message), events=said)


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
        actions=[StopGang(status.attempt, 0.0)], requeue_at=_soon(now, rules.stop_grace_s)
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
        actions=[StopGang(gang.attempt, 0.0)], requeue_at=_soon(now, rules.stop_grace_s)
    )


def _soon(now: datetime, grace_s: float) -> datetime:
    return now + timedelta(seconds=max(1.0, grace_s / 4))
