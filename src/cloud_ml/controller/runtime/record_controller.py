"""A resource controller for a kind whose decisions need nothing but the record and the time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from cloud_ml.controller.runtime.changes import WatchedKind
from cloud_ml.controller.runtime.passes import begin_step
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import ReconcileResult
from cloud_ml.controller.runtime.term import ControllerTasks, Term
from cloud_ml.domain.records import Decision, Event, Kind, Record
from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.errors import Conflict, NotFound, StaleRevision
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.state.matching import Match
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.offload import Offload

_PAGE = 1000
_FINISHES = timedelta(seconds=1)
"""When a record is looked at again whose children cannot be deleted yet."""
_TURN_S = 5.0
"""After so long a record with more to do gives its worker to others."""
S = TypeVar("S")
T = TypeVar("T")
A = TypeVar("A")


async def _nothing(*_: Any) -> None:
    """Nothing is to be done."""


@dataclass(frozen=True)
class RecordRules(Generic[S, T, A]):
    """What a controller does with the records of a kind.

    Attributes:
        kind: The kind.
        unfinished: The phases in which something may be due.
        decide: Makes a decision of a record and the time. It is called again after each commit.
        perform: Carries out an action. It may be repeated, so it must be idempotent.
        remove: Removes what belongs to a record, before the record itself is removed. It may be
            repeated.
        children: The kinds of records that are made for one of this kind. They are deleted before
            it, in the order of this list, and wake it when they change.
    """

    kind: Kind[S, T]
    unfinished: Collection[str]
    decide: Callable[[Record[S, T], datetime], Decision[T, A]]
    perform: Callable[[Record[S, T], A], Awaitable[None]] = _nothing
    remove: Callable[[Record[S, T]], Awaitable[None]] = _nothing
    children: Sequence[Kind[Any, Any]] = ()


class RecordController(Generic[S, T, A]):
    """Moves the records of a kind by a pure decision, and removes those whose deletion was asked
    for.

    Args:
        rules: What is done.
        store: Keeps the records.
        clock: The time.
        offload: Runs the calls of the store.
        workers: How many records are worked on at once.
    """

    def __init__(
        self,
        rules: RecordRules[S, T, A],
        *,
        store: StateStore,
        clock: Clock,
        offload: Offload,
        workers: int = 1,
    ) -> None:
        self._rules = rules
        self._store = store
        self._clock = clock
        self._offload = offload
        self._workers = workers

    async def begin(self, term: Term) -> ControllerTasks:
        """See ``ResourceController``."""
        queue = KeyedQueue()
        reconciler = RecordReconciler(
            self._rules, self._store, self._clock, self._offload, term.fence
        )
        pool = term.pool(queue, reconciler)
        followed = WatchedKind(self._rules.kind, queue, self._rules.unfinished)
        return ControllerTasks(followed=[followed], tasks=[pool.work] * self._workers)


class RecordReconciler(Generic[S, T, A]):
    """One look at a record: read, decide, then commit *or* act."""

    def __init__(
        self,
        rules: RecordRules[S, T, A],
        store: StateStore,
        clock: Clock,
        offload: Offload,
        fence: Fence,
    ) -> None:
        self._rules = rules
        self._store = store
        self._clock = clock
        self._offload = offload
        self._fence = fence

    async def reconcile(self, uid: str) -> ReconcileResult:
        """See ``Reconciler``."""
        record, late = await self._read(uid), time.monotonic() + _TURN_S
        while record is not None and record.delete_requested_at is None:
            if time.monotonic() > late:
                return ReconcileResult(0, self._clock() + timedelta(milliseconds=1))
            decision = await self.decide(record)
            if decision.status is None:
                if await self.act(record, decision.actions):
                    continue
                return ReconcileResult(record.revision, decision.requeue_at)
            record = await self._commit(record, decision, decision.status)
        if record is not None:
            if await self.finish(record):
                return ReconcileResult(0, self._clock() + _FINISHES)
            if await self._offload(self._delete_children, record):
                return ReconcileResult(record.revision)  # the last of them wakes it
            begin_step("remove what belongs to it")
            await self._rules.remove(record)
            with contextlib.suppress(Conflict):  # a child was made just now: it wakes its parent
                await self._offload(self._store.delete, self._rules.kind, uid, fence=self._fence)
        return ReconcileResult()

    async def decide(self, record: Record[S, T]) -> Decision[T, A]:
        """What follows for a record now. A kind that needs more than record and time looks for it
        here.
        """
        return self._rules.decide(record, self._clock())

    async def finish(self, record: Record[S, T]) -> bool:
        """Begin what is to be done before the children of a record are deleted. Returns whether that
        goes on. It may be repeated.
        """
        del record
        return False

    async def act(self, record: Record[S, T], actions: Sequence[A]) -> bool:
        """Carry actions out. Returns whether another look is due at once."""
        for action in actions:
            begin_step(f"perform {action}")
            await self._rules.perform(record, action)
        return False

    def step_aside(self, uid: str) -> None:
        """See ``Reconciler``. Nobody waits in a line for it."""

    def _delete_children(self, record: Record[S, T]) -> bool:
        """Ask for the deletion of the next kind of children that there are. Returns whether there
        are any.
        """
        for kind in self._rules.children:
            after, found = None, False
            while True:
                match = Match(parent=record.key.uid)
                page = self._store.list(kind, match=match, after=after, limit=_PAGE)
                for line in page.items:
                    found = True
                    if not line.deleting:
                        self._delete_child(kind, line.key.uid, record)
                if (after := page.next) is None:
                    break
            if found:
                return True
        return False

    def _delete_child(self, kind: Kind[Any, Any], uid: str, record: Record[S, T]) -> None:
        now = self._clock()
        event = Event(now, Reason.DELETE_REQUESTED, f"{record.key.name} is deleted")
        with contextlib.suppress(NotFound):  # it was removed in the meantime
            self._store.request_delete(kind, uid, now=now, events=[event], fence=self._fence)

    async def _read(self, uid: str) -> Record[S, T] | None:
        begin_step("read the record")
        return await self._offload(self._store.get, self._rules.kind, uid)

    async def _commit(
        self, record: Record[S, T], decision: Decision[T, A], status: T
    ) -> Record[S, T] | None:
        begin_step("commit the new state")
        try:
            return await self._offload(
                self._store.commit_status,
                self._rules.kind,
                record.key.uid,
                status,
                expected_revision=record.revision,
                fence=self._fence,
                now=self._clock(),
                events=decision.events,
            )
        except StaleRevision:  # somebody wrote in between: look at that first
            return await self._read(record.key.uid)
