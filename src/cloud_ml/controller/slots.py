"""Who may run: a bounded number of jobs, shared among organisations, within quotas. Of committed
statuses only.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from cloud_ml.controller.capacity import shortage
from cloud_ml.domain import quotas
from cloud_ml.domain.quotas import Amounts, QuotaOf, QuotaSpec
from cloud_ml.domain.records import Kind, Summary
from cloud_ml.domain.workloads.decide import WaitsFor, WorkloadRecord
from cloud_ml.domain.workloads.phases import Phase, WorkloadStatus
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.domain.workloads.spec import W
from cloud_ml.engines.base import Capacity
from cloud_ml.errors import TryAgain
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.offload import Offload

_Turn = tuple[int, datetime, str]
PLACED = tuple(phase for phase in Phase if phase.active)
_PAGE = 200
logger = logging.getLogger(__name__)


class Slots:
    """Places on the engine.

    Kept in memory and rebuilt from the store at the start of a term: ``sync`` is told every status
    that was read or committed. A place goes to the organisation that holds fewest, so that whoever
    floods the queue makes nobody else wait for more than a place; among equals, and within an
    organisation, jobs go strictly in order (priority, then time of queueing), so none starves. The
    jobs of an organisation whose next one waits for its quota let those of others pass, and only
    those.

    Args:
        most: How many jobs may hold a place.
        capacity: What the machine has. It is shared with the queues of other kinds, see ``beside``.
        wake: Called with the uid of the job whose turn it is.
        quota_of: The quota of an organisation, as it is now.
        kind: Which of its limits count: ``train``, or ``model`` for replicas of model services.
        beside: The lines of other kinds, which share the machine and the limits of all work
            together; this one joins them.
        opened: Whether places are given out; otherwise not before ``open``.
        reserved: Places that only an organisation gets that holds none, or one could hold all of
            them for ever.
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
    ) -> None:
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
        self._waiting: dict[str, Amounts] = {}

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
            self._waiting.pop(uid, None)
            if uid not in self._held:
                self._hold(uid, job.key.org, quotas.asked(job.spec.workload))
        elif phase is Phase.QUEUED:
            if uid not in self._held and uid not in self._waiting:
                self._waiting[uid] = quotas.asked(job.spec.workload)
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
        if self._first() != uid or not self._fits(job.key.org, self._waiting[uid]):
            return False
        heapq.heappop(self._lines[job.key.org])
        self._hold(uid, job.key.org, self._waiting.pop(uid))
        self._wake_first()
        return True

    def waits_for(self, job: WorkloadRecord) -> WaitsFor | None:
        """What a queued job waits for although it is its turn, or the turn of its organisation."""
        org, uid = job.key.org, job.key.uid
        wanted = quotas.asked(job.spec.workload)
        if excess := self._excess(org, wanted):
            return WaitsFor(Reason.QUOTA_EXCEEDED, "; ".join(one.sentence() for one in excess))
        head = self._head(org)
        if head is not None and head[2] != uid and self._excess(org, self._waiting[head[2]]):
            message = "jobs of the organisation that were queued before wait for its quota"
            return WaitsFor(Reason.QUOTA_EXCEEDED, message)
        if self._first() != uid:
            return None
        if self._keeps_last(org) and len(self._held) < self._most:
            kept = "place is" if self._reserved == 1 else f"{self._reserved} places are"
            message = f"the last {kept} kept for organisations that have no job running"
            return WaitsFor(Reason.INSUFFICIENT_CAPACITY, message)
        if short := self._shortage(wanted):
            return WaitsFor(Reason.INSUFFICIENT_CAPACITY, short)
        return None

    def forget(self, uid: str) -> None:
        """The job wants no place any more."""
        freed = self._held.pop(uid, None) is not None
        if freed:
            for org, held in list(self._held_by.items()):
                if held.pop(uid, None) is not None:
                    self._sums.pop(org, None)
                    if not held:
                        del self._held_by[org]
        waited = self._waiting.pop(uid, None) is not None
        if freed:
            for line in self._of_all_kinds:
                line._wake_first()
        elif waited:
            self._wake_first()

    def quota_changed(self, org: str) -> None:
        """Look again at whoever waits first in an organisation: it may fit now, or wait for
        something else.
        """
        if (head := self._head(org)) is not None:
            self._wake(head[2])
        self._wake_first()

    def _hold(self, uid: str, org: str, amounts: Amounts) -> None:
        self._held[uid] = amounts
        self._held_by.setdefault(org, {})[uid] = amounts
        self._sums.pop(org, None)

    def _wake_first(self) -> None:
        turn = self._turn()
        if turn is not None and self._fits(turn[0], self._waiting[turn[1]]):
            self._wake(turn[1])

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
            for org in list(self._lines)
            if (head := self._head(org)) is not None
        ]
        turns = (
            (org, head[2])
            for _, head, org in sorted(heads)
            if not self._excess(org, self._waiting[head[2]])
        )
        return next(turns, None)

    def _head(self, org: str) -> _Turn | None:
        """The first of an organisation's line that still waits."""
        line = self._lines.get(org, [])
        while line and line[0][2] not in self._waiting:
            heapq.heappop(line)
        if not line:
            self._lines.pop(org, None)
            return None
        return line[0]

    def _excess(self, org: str, wanted: Amounts) -> Sequence[quotas.Excess]:
        elsewhere = quotas.together(
            [line._given(org) for line in self._of_all_kinds if line is not self]
        )
        return quotas.excess(
            self._quota_of(org), wanted, self._given(org), elsewhere=elsewhere, kind=self._kind
        )

    def _given(self, org: str) -> Amounts:
        if (held := self._held_by.get(org)) is None:
            return quotas.NOTHING
        if org not in self._sums:
            self._sums[org] = quotas.together(list(held.values()))
        return self._sums[org]

    def _fits(self, org: str, wanted: Amounts) -> bool:
        return (
            len(self._held) < self._most
            and not self._keeps_last(org)
            and not self._shortage(wanted)
        )

    def _keeps_last(self, org: str) -> bool:
        """Whether what is free is kept for others than an organisation that holds places
        already.
        """
        return org in self._held_by and len(self._held) >= self._most - self._reserved

    def _shortage(self, wanted: Amounts) -> str:
        """What the machine has too little of, beside everything that runs on it."""
        held = [amounts for line in self._of_all_kinds for amounts in line._held.values()]
        who = "replica" if self._kind == "model" else "job"
        return shortage(self._capacity, wanted, quotas.together(held), who)


async def fill(
    slots: Slots,
    store: StateStore,
    kind: Kind[W, WorkloadStatus],
    offload: Offload,
    phases: Sequence[Phase] = (*PLACED, Phase.QUEUED),
) -> list[str]:
    """Have the places as they are taken, and the line as it stands, before any job of it is looked
    at.

    Otherwise jobs that happen to be looked at first would overtake older ones, or take the places
    of those that run. Returns who is in these phases, the oldest first.
    """
    found: list[tuple[datetime, str]] = []
    for phase in phases:
        after: int | None = None
        while True:
            lines = await offload(store.list, kind, indexes=[phase.value], after=after, limit=_PAGE)
            for job in await offload(_readable, store, kind, lines.items):
                slots.sync(job)
            found += [(line.created_at, line.key.uid) for line in lines.items]
            if (after := lines.next) is None:
                break
    return [uid for _, uid in sorted(found)]


def _readable(
    store: StateStore, kind: Kind[W, WorkloadStatus], lines: Sequence[Summary]
) -> list[WorkloadRecord]:
    """The records of a page. One that cannot be read holds up no other: its own pass will say
    what is wrong.
    """
    found: list[WorkloadRecord] = []
    for line in lines:
        try:
            record = store.get(kind, line.key.uid)
        except TryAgain:
            raise
        except Exception:
            logger.exception(
                "the record of %s cannot be read", line.key.name, extra={"uid": line.key.uid}
            )
            continue
        if record is not None:
            found.append(record)
    return found
