"""One look at a job: read, observe, decide, then commit *or* act."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Generic

from cloud_ml.controller.executor import Executor
from cloud_ml.controller.placement.slots import Slots
from cloud_ml.controller.results.checkpoint_retention import CheckpointRetention
from cloud_ml.controller.runtime.passes import begin_step
from cloud_ml.controller.runtime.reconciler import ReconcileResult
from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.domain.records import Decision, Event, Kind, Record
from cloud_ml.domain.workloads import memory_growth, resizing
from cloud_ml.domain.workloads.decide import decide
from cloud_ml.domain.workloads.end import saving_outputs
from cloud_ml.domain.workloads.memory_growth import MoreMemory
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.queueing import starts_again
from cloud_ml.domain.workloads.record import WorkloadDecision
from cloud_ml.domain.workloads.resizing import Growth
from cloud_ml.domain.workloads.rules import Rules
from cloud_ml.domain.workloads.spec import W
from cloud_ml.domain.workloads.worlds import NO_WORLD, World
from cloud_ml.engines.base import Engine
from cloud_ml.errors import StaleRevision
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import Reads

_CHECKPOINTS = timedelta(seconds=10)
"""How often the checkpoints of a job are looked at that keeps some of them only."""
_SOON = timedelta(seconds=1)
"""When to look again for what is on its way, such as a trainer from the web."""


class WorkloadReconciler(Generic[W]):
    """Moves what runs in attempts one step at a time towards what is wanted: train jobs, replicas
    of services.

    ``after_success`` is awaited before a success is committed, once or more often; its events are
    the record's. ``committed`` is called after each commit with the status before it and that after,
    ``passed`` after each pass with the record as it leaves it.
    """

    def __init__(
        self,
        *,
        store: StateStore,
        engine: Engine,
        executor: Executor[W],
        slots: Slots,
        rules: Rules,
        clock: Clock,
        offload: Offload,
        fence: Fence,
        read: Reads | None = None,
        kind: Kind[W, WorkloadStatus],
        after_success: Callable[[Record[W, WorkloadStatus]], Awaitable[Sequence[Event]]]
        | None = None,
        committed: Callable[[WorkloadStatus, WorkloadStatus], None] | None = None,
        passed: Callable[[Record[W, WorkloadStatus]], None] | None = None,
        retention: CheckpointRetention[W] | None = None,
    ) -> None:
        self._passed = passed
        self._store = store
        self._engine = engine
        self._executor = executor
        self._slots = slots
        self._rules = rules
        self._clock = clock
        self._offload = offload
        self._fence = fence
        self._read = read or offload
        self._kind = kind
        self._after_success = after_success
        self._committed = committed
        self._retention = retention

    async def reconcile(self, uid: str) -> ReconcileResult:
        """Take steps until there is nothing to commit.

        Raises:
            FenceLost: Another controller has taken over.
            TryAgain: A part does not answer at present.
        """
        begin_step("read the record")
        job = await self._read(self._store.get, self._kind, uid)
        observed: Sequence[ObservedGang] | None = None
        while job is not None:
            self._slots.sync(job)
            try:
                if observed is None:
                    begin_step("look at its processes")
                    observed = await self._engine.observed(uid)
                step = await self._step(job, observed)
            except Exception:
                if job.status.phase is Phase.QUEUED:
                    # Leave the queue until the next pass. Otherwise this job would block all jobs
                    # behind it.
                    self._slots.forget(uid)
                raise
            if not isinstance(step, _Committed):
                if self._passed is not None:
                    self._passed(job)
                return ReconcileResult(job.revision, step)
            # The picture of a moment ago will do for the next pass: actions are for any that may be
            # outdated.
            job, observed = step.job, None if step.stale else observed
        self._slots.forget(uid)
        return ReconcileResult()

    def step_aside(self, uid: str) -> None:
        """See ``Reconciler``."""
        if not self._slots.holds(uid):
            self._slots.forget(uid)

    async def _step(
        self, job: Record[W, WorkloadStatus], observed: Sequence[ObservedGang]
    ) -> _Committed[W] | datetime | None:
        queued = job.status.phase is Phase.QUEUED
        has_slot = queued and self._slots.take(job)
        waits_for = self._slots.waits_for(job) if queued and not has_slot else None
        saved_at = await self._saved_at(job)
        observed = await self._with_checkpoints(job, observed)
        now = self._clock()
        begins = has_slot or starts_again(job, now)
        world = self._slots.world_for(job) if begins else NO_WORLD
        larger = self._slots.larger_world(job)
        decision = decide(
            job,
            observed,
            now,
            has_slot=has_slot,
            rules=self._rules,
            waits_for=waits_for,
            ports=self._ports_for(job, world) if begins else (),
            world=world,
            growth=Growth(larger, saved_at) if larger else None,
            more_memory=self._more_memory(job, observed),
            has_room=not begins or self._slots.has_room(job),
        )
        if decision.status is not None and decision.status.next_world:
            # Until that is committed, nobody else gets the room.
            self._slots.sync(replace(job, status=decision.status))
        decision = await self._without_old_checkpoints(job, decision)
        if decision.status is not None and decision.status.phase.terminal:
            decision = await self._with_outputs(job, decision, decision.status)
        if decision.status is not None:
            return await self._commit(job, decision.status, decision.events)
        for action in decision.actions:
            if not await self._executor.perform(job, action, self._fence):
                return self._clock() + _SOON
        return decision.requeue_at

    def _ports_for(self, job: Record[W, WorkloadStatus], world: World) -> tuple[int, ...]:
        keeps = self._executor.keeps_ports(job)
        return self._slots.ports_for(job, world, keeps=keeps)

    async def _commit(
        self, job: Record[W, WorkloadStatus], status: WorkloadStatus, events: Sequence[Event]
    ) -> _Committed[W]:
        """Write the new status, with its events. If somebody wrote in between, read that instead."""
        if status.phase is Phase.SUCCEEDED and self._after_success is not None:
            # Do this before the commit, because no pass looks at the job afterwards.
            events = [*events, *await self._after_success(job)]
        begin_step("commit the new state")
        try:
            committed = await self._offload(
                self._store.commit_status,
                self._kind,
                job.key.uid,
                status,
                expected_revision=job.revision,
                fence=self._fence,
                now=self._clock(),
                events=events,
            )
        except StaleRevision:
            begin_step("read the record")
            latest = await self._read(self._store.get, self._kind, job.key.uid)
            return _Committed(latest, stale=True)
        if self._committed is not None:
            self._committed(job.status, committed.status)
        return _Committed(committed)

    def _more_memory(
        self, job: Record[W, WorkloadStatus], observed: Sequence[ObservedGang]
    ) -> MoreMemory | None:
        """What the next attempt of a job would have that ended for lack of memory."""
        more = memory_growth.after_end(job, observed)
        if more is None:
            return None
        return replace(more, refusal=self._slots.never_fits(job, more.limits))

    async def _saved_at(self, job: Record[W, WorkloadStatus]) -> datetime | None:
        """When the newest checkpoint was saved of a job that could become larger now."""
        earliest = resizing.earliest(job)
        if not self._slots.larger_world(job) or (earliest and self._clock() < earliest):
            return None
        begin_step("look for a new checkpoint")
        newest = await self._executor.newest_checkpoint(job)
        return None if newest is None else newest.at

    async def _with_checkpoints(
        self, job: Record[W, WorkloadStatus], observed: Sequence[ObservedGang]
    ) -> Sequence[ObservedGang]:
        """The gangs, with the newest checkpoint where a supervisor or a machine was lost before it
        could tell. The tasks of an array have none in common.
        """
        lost = [one for one in observed if _is_lost(one, job.status)]
        if not lost or job.spec.workload.is_array:
            return observed
        begin_step("look for the newest checkpoint")
        newest = await self._executor.newest_checkpoint(job)
        return [replace(one, checkpoint=newest) if one in lost else one for one in observed]

    async def _without_old_checkpoints(
        self, job: Record[W, WorkloadStatus], decision: WorkloadDecision
    ) -> WorkloadDecision:
        """While a job runs, and once more before it ends: first commit which checkpoints are to go,
        then remove them.
        """
        ends = decision.status is not None and decision.status.phase.terminal
        idle = decision.status is None and not decision.actions
        looks = ends or (idle and job.status.phase is Phase.RUNNING)
        if self._retention is None or job.spec.workload.keep_checkpoints is None or not looks:
            return decision
        begin_step("look for checkpoints that are to go")
        doomed = await self._retention.look(job)
        if doomed is not None:
            return Decision(status=replace(job.status, dropped_checkpoints=tuple(doomed)))
        if ends:
            return decision
        again = self._clock() + _CHECKPOINTS
        return replace(decision, requeue_at=min(again, decision.requeue_at or again))

    async def _with_outputs(
        self, job: Record[W, WorkloadStatus], decision: WorkloadDecision, ended: WorkloadStatus
    ) -> WorkloadDecision:
        """The end of a job with what it left, or another look while that is being saved."""
        collection = await self._executor.collect_outputs(job)
        if collection is None:
            now = self._clock()
            return replace(saving_outputs(job, decision, now), requeue_at=now + _SOON)
        status = replace(ended, outputs=collection.outputs)
        return replace(decision, status=status, events=[*decision.events, *collection.events])


class _Committed(Generic[W]):
    """The pass ended with a commit: the next pass follows at once, on this record."""

    def __init__(self, job: Record[W, WorkloadStatus] | None, *, stale: bool = False) -> None:
        self.job = job
        self.stale = stale


def _is_lost(gang: ObservedGang, status: WorkloadStatus) -> bool:
    """Whether the current attempt has ended without a word about its checkpoints."""
    current = gang.attempt == status.attempt and not status.phase.terminal
    return current and gang.state is GangState.LOST and gang.checkpoint is None
