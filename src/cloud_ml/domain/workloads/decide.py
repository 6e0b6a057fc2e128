"""The heart of the platform: what follows from one look at a job.

The phases are here in the order of precedence; what follows in each is in ``queueing``,
``live_attempt``, ``pausing`` and ``stopping``. Pure and total: any record, any observation and any
time give a decision, and giving it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cloud_ml.domain.observed import ObservedGang
from cloud_ml.domain.records import Decision
from cloud_ml.domain.workloads import failover, resizing
from cloud_ml.domain.workloads.actions import Forget, StopGang
from cloud_ml.domain.workloads.live_attempt import follow_attempt
from cloud_ml.domain.workloads.memory_growth import MoreMemory
from cloud_ml.domain.workloads.pausing import give_way, is_to_restart
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.queueing import (
    WaitsFor,
    at_rest,
    begin_attempt,
    queue_for_memory,
    starts_again,
    wait_in_queue,
)
from cloud_ml.domain.workloads.record import WorkloadDecision, WorkloadRecord
from cloud_ml.domain.workloads.resizing import Growth
from cloud_ml.domain.workloads.rules import Rules, next_look
from cloud_ml.domain.workloads.spec import Desired
from cloud_ml.domain.workloads.stopping import stop
from cloud_ml.domain.workloads.worlds import NO_WORLD, World


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
        return Decision(
            actions=[StopGang(stray.attempt, grace_s)], requeue_at=next_look(now, grace_s)
        )
    gang = _current(job, observed)
    if status.phase.terminal:
        return _after_the_end(job, gang, rules, now)
    if (
        # Deleting or stopping takes precedence over pausing, and pausing over starting.
        job.delete_requested_at
        or job.spec.workload.desired is Desired.STOPPED
        or status.phase is Phase.STOPPING
    ):
        return stop(job, gang, now, rules)
    if status.phase in (Phase.SAVED, Phase.PAUSED):
        return at_rest(job, now)
    if job.spec.workload.desired is Desired.PAUSED or is_to_restart(job):
        return give_way(job, gang, now, rules, more_memory)
    if status.phase is Phase.QUEUED:
        if not has_slot:  # the slot that becomes free wakes the queue
            return wait_in_queue(status, now, waits_for)
        return begin_attempt(job, now, ports, world)
    if status.phase is Phase.RESTARTING:
        if not starts_again(job, now):
            return Decision(requeue_at=status.not_before)
        if not has_room:
            return queue_for_memory(job, now)
        return begin_attempt(job, now, ports, world)
    return follow_attempt(job, gang, now, rules, more_memory)


def _after_the_end(
    job: WorkloadRecord, gang: ObservedGang | None, rules: Rules, now: datetime
) -> WorkloadDecision:
    if gang is not None and not gang.state.over:
        return Decision(
            actions=[StopGang(gang.attempt, 0.0)], requeue_at=next_look(now, rules.stop_grace_s)
        )
    return Decision(actions=[Forget()]) if job.delete_requested_at else Decision()
