"""The controller manager with a kind of the test's own: notes, which are to be read aloud."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime

import pytest

from cloud_ml.controller.runtime.changes import WatchedKind
from cloud_ml.controller.runtime.manager import ControllerManager
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import ReconcileResult
from cloud_ml.controller.runtime.term import ControllerTasks, ResourceController, Term
from cloud_ml.domain.records import Event, Kind
from cloud_ml.engines.fake import FakeEngine
from cloud_ml.errors import Unavailable
from cloud_ml.settings import ControllerSettings
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.clock import system_clock
from cloud_ml.usecases.offload import Offload

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class NoteStatus:
    phase: str = "Unread"


LIMIT_S = 60
NOTE = Kind("note", Note, NoteStatus)


class NoteController:
    """Reads notes: the whole of a resource controller."""

    def __init__(self, store: MemoryStateStore, offload: Offload) -> None:
        self._store = store
        self._offload = offload
        self.read: list[str] = []
        self.heard: list[str] = []
        self.order: list[str] = []
        self.begun = self.ended = self.refusals = 0

    async def begin(self, term: Term) -> ControllerTasks:
        self.begun += 1
        if self.begun <= self.refusals:
            raise Unavailable("the store is away")
        self._term, queue = term, KeyedQueue()
        pool = term.pool(queue, self)
        return ControllerTasks(
            followed=[WatchedKind(NOTE, queue, ["Unread"])],
            handlers={NOTE.name: self._hear},
            before_changes=[self._first],
            prepare=[lambda: self.order.append("prepare")],
            tasks=[pool.work],
            end=self._end,
        )

    async def reconcile(self, uid: str) -> ReconcileResult:
        note = await self._offload(self._store.get, NOTE, uid)
        if note is None:
            return ReconcileResult()
        if note.status.phase == "Unread":
            self.read.append(note.spec.text)
            event = Event(system_clock(), "Read", note.spec.text)
            await self._offload(
                self._store.commit_status,
                NOTE,
                uid,
                NoteStatus("Read"),
                expected_revision=note.revision,
                fence=self._term.fence,
                now=system_clock(),
                events=[event],
            )
        return ReconcileResult(note.revision)

    def step_aside(self, uid: str) -> None:
        """Notes wait in no line."""

    async def _first(self) -> None:
        self.order.append("before changes")

    async def _hear(self, uid: str) -> None:
        self.heard.append(uid)

    def _end(self) -> None:
        self.ended += 1


@contextlib.asynccontextmanager
async def running(
    store: MemoryStateStore, offload: Offload, *controllers: ResourceController
) -> AsyncIterator[None]:
    settings = ControllerSettings(
        poll_s=0.5, lease_ttl_s=30.0, backoff_first_s=0.01, backoff_longest_s=0.05
    )
    manager = ControllerManager(
        controllers,
        store=store,
        engine=FakeEngine(),
        settings=settings,
        holder="one",
        clock=system_clock,
        offload=offload,
    )
    task = asyncio.create_task(manager.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


@pytest.fixture
def offload() -> Offload:
    return Offload(2)


def write(store: MemoryStateStore, name: str, now: Callable[[], datetime] = system_clock) -> str:
    return store.create(
        NOTE,
        org="o",
        name=name,
        owner="u",
        spec=Note(f"the text of {name}"),
        status=NoteStatus(),
        now=now(),
    ).key.uid


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not holds():
            await asyncio.sleep(0.002)


def phase(store: MemoryStateStore, uid: str) -> str:
    note = store.get(NOTE, uid)
    assert note is not None
    return note.status.phase


async def test_a_kind_of_its_own_is_reconciled(store: MemoryStateStore, offload: Offload) -> None:
    there = write(store, "before")
    notes = NoteController(store, offload)
    async with running(store, offload, notes):
        await until(lambda: phase(store, there) == "Read")
        later = write(store, "later")
        await until(lambda: phase(store, later) == "Read")
        await until(lambda: later in notes.heard)
    assert notes.read == ["the text of before", "the text of later"]
    assert notes.order == ["before changes", "prepare"]
    assert [event.message for event in store.events(there)] == ["the text of before"]
    assert notes.ended == 1


async def test_every_controller_hears_of_the_changes_that_it_asked_for(
    store: MemoryStateStore, offload: Offload
) -> None:
    class Listener:
        def __init__(self) -> None:
            self.heard: list[str] = []

        async def begin(self, term: Term) -> ControllerTasks:
            return ControllerTasks(handlers={NOTE.name: self._hear})

        async def _hear(self, uid: str) -> None:
            self.heard.append(uid)

    notes, listener = NoteController(store, offload), Listener()
    async with running(store, offload, notes, listener):
        await until(lambda: notes.order == ["before changes", "prepare"])
        uid = write(store, "one")
        await until(lambda: uid in notes.heard and uid in listener.heard)


async def test_a_term_that_cannot_begin_begins_again_and_ends_what_had_begun(
    store: MemoryStateStore, offload: Offload
) -> None:
    first, second = NoteController(store, offload), NoteController(store, offload)
    second.refusals = 2
    async with running(store, offload, first, second):
        await until(lambda: second.begun == 3)
        assert (first.begun, first.ended) == (3, 2)
    assert (first.ended, second.ended) == (3, 1)
