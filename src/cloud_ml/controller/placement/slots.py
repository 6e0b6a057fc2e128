"""Who may run: a bounded number of jobs, shared among organisations, within quotas. Of committed
statuses only.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from cloud_ml.controller.placement.capacity import shortage
from cloud_ml.controller.placement.task_ports import TaskPorts
from cloud_ml.domain import quotas
from cloud_ml.domain.quotas import Amounts, QuotaOf, QuotaSpec
from cloud_ml.domain.workloads.memory_growth import MemoryLimits, reserve_memory, with_memory
from cloud_ml.domain.workloads.phases import Phase
from cloud_ml.domain.workloads.queueing import WaitsFor
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.record import WorkloadRecord
from cloud_ml.domain.workloads.spec import WorkloadSpec
from cloud_ml.domain.workloads.worlds import (
    NO_WORLD,
    World,
    at_least,
    is_larger,
    largest,
    most_of,
    within,
)
from cloud_ml.engines.base import Capacity

_Turn = tuple[int, datetime, str]


class Slots:
    """Places on the engine.

    Kept in memory and rebuilt from the store at the start of a term: ``sync`` is told every status
    that was read or committed. A place goes to the organisation that holds fewest, so that whoever
    floods the queue makes nobody else wait for more than a place; among equals, and within an
    organisation, jobs go strictly in order (priority, then time of queueing), so none starves. The
    jobs of an organisation whose next one waits for its quota let those of others pass, and only
    those. Jobs that exceed the whole quota hold up nobody: they leave the line until the quota
    changes.

    Args:
        most: How many jobs may hold a place.
        capacity: What the machine has. It is shared with the queues of other kinds, see ``beside``.
        wake: Called with the uid of the job whose turn it is.
        quota_of: The quota of an organisation, as it is now.
        kind: Which of its limits count: ``train``, ``tensorboard``, or ``model`` for replicas of
            model services.
        beside: The lines of other kinds, which share the machine and the limits of all work
            together; this one joins them.
        opened: Whether places are given out; otherwise not before ``open``.
        reserved: Places that only an organisation gets that holds none, or one could hold all of
            them for ever.
        ports: Those of jobs whose tasks find each other.
    """

    def __init__(
        self,
        most: int,
        capacity: Capacity,
        wake: Callable[[str], None],
        quota_of: QuotaOf = lambda _: QuotaSpec(),
        *,
        kind: str = "train",
        beside: list[Slots] | None = None,
        opened: bool = True,
        reserved: int = 0,
        ports: TaskPorts | None = None,
    ) -> None:
        self._ports = ports or TaskPorts()
        self._reserved = reserved
        self._of_all_kinds = [] if beside is None else beside
        self._of_all_kinds.append(self)
        self._most = most
        self._capacity = capacity
        self._wake = wake
        self._quota_of = quota_of
        self._kind = kind
        self._opened = opened
        self._held: dict[str, Amounts] = {}
        self._held_by: dict[str, dict[str, Amounts]] = {}
        self._sums: dict[
            str, Amounts
        ] = {}  # of what organisations hold, as far as they were asked for
        self._lines: dict[str, list[_Turn]] = {}
        # Jobs that exceed the whole quota of their organisation, and the quota they exceed.
        self._oversized: dict[str, dict[str, _Turn]] = {}
        self._exceeded: dict[str, QuotaSpec] = {}
        self._waiting: dict[str, Amounts] = {}
        self._requested_ports: dict[str, int] = {}  # of those that wait
        self._worlds: dict[str, World] = {}  # of elastic jobs that are about to start
        self._growing: set[str] = set()  # elastic jobs that run with fewer tasks than they may have

    def open(self) -> None:
        """Give out places from here on: everybody who waits is known."""
        self._opened = True
        self._wake_first()

    def reserve(self, places: int) -> None:
        """Keep so many places for organisations that hold none, from here on."""
        before, self._reserved = self._reserved, places
        if places < before:
            self._wake_first()

    def sync(self, job: WorkloadRecord) -> None:
        """Take note of where a job stands."""
        uid, phase = job.key.uid, job.status.phase
        if phase.active:
            self._ports.note(uid, job.status.ports)
            self._waiting.pop(uid, None)
            self._requested_ports.pop(uid, None)
            self._note_held(job)
        elif phase is Phase.QUEUED:
            if uid in self._held and not self.has_room(job):
                self.forget(uid)  # it needs more than it had, and waits for that like all others
            if uid not in self._held and uid not in self._waiting:
                minimum = at_least(_workload_of(job))
                self._waiting[uid] = quotas.requested_amounts(minimum)
                self._requested_ports[uid] = minimum.port_count
                turn = (-job.spec.workload.priority, job.status.queued_at or job.created_at, uid)
                heapq.heappush(self._lines.setdefault(job.key.org, []), turn)
        else:
            self.forget(uid)

    def holds(self, uid: str) -> bool:
        """Whether the job has a place."""
        return uid in self._held

    def take(self, job: WorkloadRecord) -> bool:
        """Whether the queued job may start now; it then holds a place until a later ``sync``
        says otherwise.
        """
        uid = job.key.uid
        if uid in self._held:
            return True
        if self._first() != uid or not self._fits(job.key.org, uid):
            return False
        heapq.heappop(self._lines[job.key.org])
        self._requested_ports.pop(uid, None)
        self._hold(uid, job.key.org, self._waiting.pop(uid))
        self._worlds[uid] = self._take_largest_world(job)
        self._wake_heads(job.key.org)
        # What the job takes of its organisation's quota may give the turn of another line away.
        for line in self._of_all_kinds:
            line._wake_first()
        return True

    def world_for(self, job: WorkloadRecord) -> World:
        """The tasks of the next attempt of a job that holds a place, which are as many as there is
        room for; empty for a job that is not elastic.

        While others wait, they are not more than it has room for already.
        """
        if not job.spec.workload.is_elastic:
            return NO_WORLD
        if (world := self._worlds.get(job.key.uid)) is not None:
            return world
        # One that was resumed while it was being paused is queued, and has its place still.
        held = job.status.next_world or job.status.world
        return self._take_largest_world(job, NO_WORLD if self._is_all_served(job.key.org) else held)

    def larger_world(self, job: WorkloadRecord) -> World:
        """More tasks than a running job has, for which there is room that nobody waits for; empty
        if there is none.
        """
        if job.key.uid not in self._growing or not self._is_all_served(job.key.org):
            return NO_WORLD
        found = self._largest(job)
        return found if is_larger(found, job.status.world) else NO_WORLD

    def ports_for(
        self, job: WorkloadRecord, world: World = NO_WORLD, *, keeps: bool = False
    ) -> tuple[int, ...]:
        """The ports of the next attempt of a job that holds a place: those of each task, if its
        tasks find each other. With ``keeps``, those of the last attempt, where nobody else has
        them.

        Raises:
            TryAgain: Too few are free.
        """
        count = within(job.spec.workload, world).port_count
        return self._ports.take(job.key.uid, count, job.status.ports, keeps=keeps)

    def has_room(self, job: WorkloadRecord) -> bool:
        """Whether there is room for a job with a place, if it needs more memory than before; that
        of all others was looked at when they got their places.
        """
        if not job.status.memory:
            return True
        return self._room_beside_others(job)(at_least(_workload_of(job)))

    def never_fits(self, job: WorkloadRecord, limits: MemoryLimits) -> str:
        """Why a job could never start with such memory limits, in a sentence; empty if it could."""
        amounts = quotas.requested_amounts(at_least(with_memory(job.spec.workload, limits)))
        if found := quotas.excess(self._quota_of(job.key.org), amounts, kind=self._kind):
            return "; ".join(one.sentence() for one in found)
        memory, most = amounts.memory_bytes or 0, self._capacity.memory_bytes
        if memory <= most:
            return ""
        needed, there = (quotas.format_amount("memory_bytes", size) for size in (memory, most))
        return f"it would need {needed} of memory, and this machine has {there}"

    def waits_for(self, job: WorkloadRecord) -> WaitsFor | None:
        """What a queued job waits for although it is its turn, or the turn of its organisation."""
        org, uid = job.key.org, job.key.uid
        least = at_least(_workload_of(job))
        amounts = quotas.requested_amounts(least)
        if excess := quotas.excess(self._quota_of(org), amounts, kind=self._kind):
            why = "; ".join(one.limit_sentence() for one in excess)
            who = quotas.ASKERS[self._kind]
            message = f"the {who} can never start while the quota stays as it is: {why}"
            return WaitsFor(Reason.QUOTA_EXCEEDED, message)
        head = self._head(org)
        # Figures of jobs further back would become stale: only the head is woken when they change.
        if head is not None and head[2] != uid and self._excess(org, self._waiting[head[2]]):
            message = "jobs of the organisation that were queued before wait for its quota"
            return WaitsFor(Reason.QUOTA_EXCEEDED, message)
        if excess := self._excess(org, amounts):
            return WaitsFor(Reason.QUOTA_EXCEEDED, "; ".join(one.sentence() for one in excess))
        if self._first() != uid:
            return None
        if self._keeps_last(org) and len(self._held) < self._most:
            kept = "place is" if self._reserved == 1 else f"{self._reserved} places are"
            message = f"the last {kept} kept for organisations that have no job running"
            return WaitsFor(Reason.INSUFFICIENT_CAPACITY, message)
        if short := self._shortage(amounts) or self._ports.shortage(least.port_count):
            return WaitsFor(Reason.INSUFFICIENT_CAPACITY, short)
        return None

    def forget(self, uid: str) -> None:
        """The job wants no place any more."""
        self._ports.free(uid)
        self._worlds.pop(uid, None)
        self._growing.discard(uid)
        freed = self._held.pop(uid, None) is not None
        if freed:
            for org, held in list(self._held_by.items()):
                if held.pop(uid, None) is not None:
                    self._sums.pop(org, None)
                    if not held:
                        del self._held_by[org]
                    self._wake_heads(org)
        led = next((org for org, line in self._lines.items() if line and line[0][2] == uid), None)
        waited = self._waiting.pop(uid, None) is not None
        self._requested_ports.pop(uid, None)
        for oversized in self._oversized.values():
            oversized.pop(uid, None)
        if freed:
            for line in self._of_all_kinds:
                line._wake_first()
        elif waited:
            if led is not None:
                self._wake_heads(led)
            self._wake_first()

    def quota_changed(self, org: str) -> None:
        """Look again at all jobs of an organisation that wait: they may fit now, or never, or
        wait for something else.
        """
        self._head(org)  # sorts out anew who exceeds the whole quota
        turns = [*self._lines.get(org, ()), *self._oversized.get(org, {}).values()]
        for uid in dict.fromkeys(uid for _, _, uid in sorted(turns)):
            if uid in self._waiting:
                self._wake(uid)
        self._wake_first()

    def _hold(self, uid: str, org: str, amounts: Amounts) -> None:
        self._held[uid] = amounts
        self._held_by.setdefault(org, {})[uid] = amounts
        self._sums.pop(org, None)

    def _note_held(self, job: WorkloadRecord) -> None:
        """What a job with a place holds; with elastic ones, that changes."""
        uid, workload, status = job.key.uid, job.spec.workload, job.status
        known = self._held.get(uid)
        if known is not None and not workload.is_elastic and not status.memory:
            return
        self._worlds.pop(uid, None)
        runs = workload.is_elastic and status.phase is Phase.RUNNING
        may_grow = runs and is_larger(most_of(workload), status.world)
        (self._growing.add if may_grow else self._growing.discard)(uid)
        amounts = quotas.requested_amounts(reserve_memory(workload, status))
        if amounts == known:
            return
        self._hold(uid, job.key.org, amounts)
        if known is not None:  # it may have become smaller
            self._wake_heads(job.key.org)
            for line in self._of_all_kinds:
                line._wake_first()

    def _take_largest_world(self, job: WorkloadRecord, most: World = NO_WORLD) -> World:
        """The largest world of an elastic job with a place; the room is its own from now on."""
        if not job.spec.workload.is_elastic:
            return NO_WORLD
        world = self._largest(job, most)
        self._hold(
            job.key.uid, job.key.org, quotas.requested_amounts(within(_workload_of(job), world))
        )
        return world

    def _largest(self, job: WorkloadRecord, most: World = NO_WORLD) -> World:
        """The largest world for which there is room beside all others."""
        return largest(_workload_of(job), self._room_beside_others(job), most)

    def _room_beside_others(self, job: WorkloadRecord) -> Callable[[WorkloadSpec], bool]:
        """Tells whether there is room for a workload in the place of a job that has one."""
        uid, org = job.key.uid, job.key.org
        own = quotas.together(
            [held for other, held in self._held_by.get(org, {}).items() if other != uid]
        )
        others = quotas.together(
            [
                one
                for line in self._of_all_kinds
                for other, one in line._held.items()
                if other != uid
            ]
        )
        # Even the only job of the machine has to fit into it.
        beside = replace(others, count=max(1, others.count or 0))
        ports = self._ports.room_for(uid)

        def fits(workload: WorkloadSpec) -> bool:
            # It has its place, whatever the number of jobs is limited to by now.
            amounts = replace(quotas.requested_amounts(workload), count=0)
            return (
                workload.port_count <= ports
                and (amounts.gpus or 0) <= self._capacity.gpus
                and not shortage(self._capacity, amounts, beside, "job")
                and not self._excess(org, amounts, own)
            )

        return fits

    def _is_all_served(self, org: str) -> bool:
        """Whether nobody waits who could use what is free."""
        return all(
            line._opened and line._turn() is None and line._head(org) is None
            for line in self._of_all_kinds
        )

    def _wake_first(self) -> None:
        turn = self._turn()
        if turn is None:  # what is free may be for jobs that can become larger, of any line
            for line in self._of_all_kinds:
                for uid in list(line._growing):
                    line._wake(uid)
        elif self._fits(*turn):
            self._wake(turn[1])

    def _wake_heads(self, org: str) -> None:
        """Have whoever waits first for the quota of an organisation say anew what it waits for."""
        if self._quota_of(org).lets_all_start:
            return
        for line in self._of_all_kinds:
            if line._opened and (head := line._head(org)) is not None:
                line._wake(head[2])

    def _first(self) -> str | None:
        """The job whose turn it is."""
        turn = self._turn()
        return None if turn is None else turn[1]

    def _turn(self) -> tuple[str, str] | None:
        """Organisation and job whose turn it is among those whose quota has room; nobody's
        before ``open``.
        """
        if not self._opened:
            return None
        heads = [
            (len(self._held_by.get(org, ())), head, org)
            for org in {**self._lines, **self._exceeded}
            if (head := self._head(org)) is not None
        ]
        turns = (
            (org, head[2])
            for _, head, org in sorted(heads)
            if not self._excess(org, self._waiting[head[2]])
        )
        return next(turns, None)

    def _head(self, org: str) -> _Turn | None:
        """The first of an organisation's line that still waits and that its quota could hold."""
        quota = self._quota_of(org)
        if org in self._exceeded and self._exceeded[org] != quota:
            del self._exceeded[org]
            for turn in self._oversized.pop(org).values():
                heapq.heappush(self._lines.setdefault(org, []), turn)
        line = self._lines.get(org, [])
        while line:
            turn = line[0]
            if (amounts := self._waiting.get(turn[2])) is not None:
                if not quotas.excess(quota, amounts, kind=self._kind):
                    return turn
                self._oversized.setdefault(org, {})[turn[2]] = turn
                self._exceeded[org] = quota
            # Drop entries that left the queue when they reach its front: removing from the middle
            # of a heap is expensive.
            heapq.heappop(line)
        self._lines.pop(org, None)
        return None

    def _excess(
        self, org: str, requested: Amounts, given: Amounts | None = None
    ) -> Sequence[quotas.Excess]:
        if (quota := self._quota_of(org)).lets_all_start:
            return ()
        elsewhere = quotas.together(
            [line._amounts_of(org) for line in self._of_all_kinds if line is not self]
        )
        return quotas.excess(
            quota,
            requested,
            self._amounts_of(org) if given is None else given,
            elsewhere=elsewhere,
            kind=self._kind,
        )

    def _amounts_of(self, org: str) -> Amounts:
        if (held := self._held_by.get(org)) is None:
            return quotas.NOTHING
        if org not in self._sums:
            self._sums[org] = quotas.together(list(held.values()))
        return self._sums[org]

    def _fits(self, org: str, uid: str) -> bool:
        """Whether a job that waits may have a place."""
        return (
            len(self._held) < self._most
            and not self._keeps_last(org)
            and not self._shortage(self._waiting[uid])
            and not self._ports.shortage(self._requested_ports[uid])
        )

    def _keeps_last(self, org: str) -> bool:
        """Whether what is free is kept for others than an organisation that holds places
        already.
        """
        return org in self._held_by and len(self._held) >= self._most - self._reserved

    def _shortage(self, requested: Amounts) -> str:
        """What the machine has too little of, beside everything that runs on it."""
        held = [amounts for line in self._of_all_kinds for amounts in line._held.values()]
        who = quotas.ASKERS[self._kind]
        return shortage(self._capacity, requested, quotas.together(held), who)


def _workload_of(job: WorkloadRecord) -> WorkloadSpec:
    """The workload of a job with the memory limits that it has by now."""
    return with_memory(job.spec.workload, job.status.memory)
