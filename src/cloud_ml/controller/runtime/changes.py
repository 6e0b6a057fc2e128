"""What makes a record wanted on its queue: changes in the store, and changes on the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cloud_ml import timers
from cloud_ml.controller.runtime.event_handlers import EventHandler, EventHandlerRunner
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.domain.records import Kind
from cloud_ml.engines.base import Engine
from cloud_ml.errors import CloudMlError
from cloud_ml.state.base import Change, StateStore
from cloud_ml.state.matching import EVERYTHING, Match
from cloud_ml.usecases.changes import ChangeHub, threadsafe
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import Reads

_PAGE = 1000
_CHANGES = 200
logger = logging.getLogger(__name__)


Claim = Callable[[str], bool]
"""Whether the gangs of a record are those of this queue."""


@dataclass(frozen=True)
class WatchedKind:
    """A kind whose records are queued when they change, and when one of their children does.

    Attributes:
        kind: The kind.
        queue: Where they are queued.
        unfinished: The phases in which something may be due: at the start the records in one of
            them are queued, and those that are being deleted.
        only_at_start: Whether its controller hears of later changes in another way.
        revived: Records that their owner may have had go on after their end while nobody led: they
            are queued at the start, too, whatever their phase.
    """

    kind: Kind[Any, Any]
    queue: KeyedQueue
    unfinished: Collection[str]
    only_at_start: bool = False
    revived: Match | None = None


class ChangeFeed:
    """Queues records that changed: woken by commits, polling regardless. One reading of the feed
    serves all.

    Args:
        store: Whose feed is followed.
        followed: What is queued.
        offload: Runs the store's calls.
        poll_s: The longest a change of another server stays unnoticed.
        read: Reads the feed.
        handlers: Who else is told of changed records of a kind.
        handler_limit_s: How long the feed waits for a handler. One that hangs holds up no other
            record.
        hub: Whose watches are told of what was read, too.
        prepare: Called once, on threads, when nothing can be missed any more: changes from here on
            are followed.
    """

    def __init__(
        self,
        store: StateStore,
        followed: Sequence[WatchedKind],
        offload: Offload,
        poll_s: float,
        *,
        read: Reads | None = None,
        handlers: Mapping[str, Sequence[EventHandler]] = MappingProxyType({}),
        handler_limit_s: float = 1.0,
        hub: ChangeHub | None = None,
        prepare: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._store = store
        self._followed = followed
        self._watched: dict[str, list[WatchedKind]] = {}
        for each in followed:
            if not each.only_at_start:
                self._watched.setdefault(each.kind.name, []).append(each)
        self._offload = offload
        self._read_feed = read or offload
        self._poll_s = poll_s
        self._handlers = handlers
        self._hub = hub
        self._tell: Callable[[Sequence[Change]], None] = lambda _: None
        self._prepare = prepare
        self._runner = EventHandlerRunner(handler_limit_s)

    async def run(self) -> None:
        """Queue whatever is not at rest, then follow the feed. Never returns."""
        hint = asyncio.Event()
        # Subscribe first, then read the position, then the lists. Changes made while the lists
        # are read come after the position.
        unsubscribe = self._store.subscribe(threadsafe(asyncio.get_running_loop(), hint))
        subscriptions = contextlib.ExitStack()
        try:
            cursor = await self._offload(self._store.revision)
            await asyncio.gather(*(self._offload(each) for each in self._prepare))
            for each in self._followed:
                await self._queue_listed(each, list(each.unfinished), EVERYTHING)
                await self._queue_listed(each, None, Match(deleting=True))
                if each.revived is not None:
                    await self._queue_listed(each, None, each.revived)
            if self._hub is not None:
                self._tell = subscriptions.enter_context(self._hub.follower())
            while True:
                hint.clear()  # before the reading: a commit in between wakes the next round
                await self._runner.repeat()
                try:
                    cursor = await self._read(cursor)
                except CloudMlError:
                    logger.warning("the change feed cannot be read; trying again", exc_info=True)
                await timers.wait_for_hint(hint, self._poll_s)
        finally:
            subscriptions.close()
            unsubscribe()
            self._runner.close()

    async def _read(self, cursor: int) -> int:
        while True:
            changes = await self._read_feed(self._store.changes, cursor, limit=_CHANGES)
            self._tell(changes)  # before any handler, which may take long
            for change in changes:
                cursor = change.revision
                for each in self._watched.get(change.kind, ()):
                    each.queue.add(change.uid, change.revision)
                if (parent := change.parent) is not None:
                    for each in self._watched.get(parent.kind, ()):
                        # Pass no revision: the child's revision says nothing about the parent.
                        each.queue.add(parent.uid)
                for handler in self._handlers.get(change.kind, ()):
                    await self._runner.give(handler, change.uid)
            if len(changes) < _CHANGES:
                return cursor

    async def _queue_listed(
        self, followed: WatchedKind, indexes: list[str] | None, match: Match
    ) -> None:
        after: int | None = None
        while True:
            page = await self._offload(
                self._store.list,
                followed.kind,
                indexes=indexes,
                match=match,
                after=after,
                limit=_PAGE,
            )
            for summary in page.items:
                followed.queue.add(summary.key.uid)
            if (after := page.next) is None:
                return


class EngineChanges:
    """Queues every record whose gangs changed: on the queue that claims it, or on all where none
    does.

    Records that are on their way to an end have gangs, and a queue claims those. What a server
    before left behind is claimed by none: a pass for a record of another kind finds nothing, and
    does nothing.
    """

    def __init__(self, engine: Engine, queues: Sequence[tuple[KeyedQueue, Claim]]) -> None:
        self._engine = engine
        self._queues = queues

    async def run(self) -> None:
        """Follow the engine. Never returns."""
        while True:
            try:
                async for uid in self._engine.changes():
                    for queue in self._with(uid):
                        queue.add(uid)
            except Exception:  # the machine may be out of descriptors for a while
                logger.warning("the engine cannot be followed; trying again", exc_info=True)
                await asyncio.sleep(1.0)

    def _with(self, uid: str) -> Sequence[KeyedQueue]:
        claimed = [queue for queue, claims in self._queues if claims(uid)]
        return claimed or [queue for queue, _ in self._queues]
