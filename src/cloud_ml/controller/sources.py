"""What makes somebody look at a job: changes in the store, changes on the engine, and time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from cloud_ml.controller.queue import KeyedQueue
from cloud_ml.domain.jobs.kind import TRAIN_JOB
from cloud_ml.domain.jobs.phases import TERMINAL, Phase
from cloud_ml.domain.records import Kind
from cloud_ml.engines.base import Engine
from cloud_ml.errors import CloudMlError
from cloud_ml.state.base import StateStore
from cloud_ml.state.matching import EVERYTHING, Match
from cloud_ml.usecases.changes import threadsafe
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import Reads

_PAGE = 1000
_CHANGES = 200
_PHASES = tuple(phase.value for phase in Phase)
_ENDED = tuple(phase.value for phase in TERMINAL)
logger = logging.getLogger(__name__)


class StoreSource:
    """Queues every record of a kind that changed: woken by commits, polling regardless.

    Args:
        store: Whose feed is followed.
        queue: Gets the uids.
        offload: Runs the store's calls.
        read: Reads the feed.
        poll_s: The longest a change of another server stays unnoticed.
        others: What to do with the uid of a record of another kind that changed.
        kind: Which records; of these, those are queued at the start that are in one of ``phases`` and none of
            ``resting``, and those that are being deleted.
        prepare: Called once, on a thread, when nothing can be missed any more: changes from here on are followed.
    """

    def __init__(
        self,
        store: StateStore,
        queue: KeyedQueue,
        offload: Offload,
        poll_s: float,
        *,
        read: Reads | None = None,
        others: Mapping[str, Callable[[str], Awaitable[None]]] = MappingProxyType({}),
        prepare: Callable[[], None] = lambda: None,
        kind: Kind[Any, Any] = TRAIN_JOB,
        resting: Collection[str] = _ENDED,
        phases: Collection[str] = _PHASES,
    ) -> None:
        self._store = store
        self._kind = kind
        self._unfinished = [phase for phase in phases if phase not in resting]
        self._queue = queue
        self._offload = offload
        self._read_feed = read or offload
        self._poll_s = poll_s
        self._others = others
        self._prepare = prepare

    async def run(self) -> None:
        """Queue whatever is not at rest, then follow the feed. Never returns."""
        hint = asyncio.Event()
        unsubscribe = self._store.subscribe(threadsafe(asyncio.get_running_loop(), hint))
        try:
            cursor = await self._offload(self._store.revision)
            await self._offload(self._prepare)
            await self._queue_unfinished()
            while True:
                hint.clear()  # before the reading: a commit in between wakes the next round
                try:
                    cursor = await self._read(cursor)
                except CloudMlError:
                    logger.warning("the change feed cannot be read; trying again", exc_info=True)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await hint.wait()
        finally:
            unsubscribe()

    async def _read(self, cursor: int) -> int:
        while True:
            changes = await self._read_feed(self._store.changes, cursor, limit=_CHANGES)
            for change in changes:
                cursor = change.revision
                if change.kind == self._kind.name:
                    self._queue.add(change.uid, change.revision)
                elif (notice := self._others.get(change.kind)) is not None:
                    await notice(change.uid)
            if len(changes) < _CHANGES:
                return cursor

    async def _queue_unfinished(self) -> None:
        await self._queue_listed(self._unfinished, EVERYTHING)
        await self._queue_listed(None, Match(deleting=True))

    async def _queue_listed(self, indexes: list[str] | None, match: Match) -> None:
        after: int | None = None
        while True:
            page = await self._offload(
                self._store.list, self._kind, indexes=indexes, match=match, after=after, limit=_PAGE
            )
            for summary in page.items:
                self._queue.add(summary.key.uid)
            if (after := page.next) is None:
                return


class EngineSource:
    """Queues every job whose gangs changed."""

    def __init__(self, engine: Engine, queue: KeyedQueue) -> None:
        self._engine = engine
        self._queue = queue

    async def run(self) -> None:
        """Follow the engine. Never returns."""
        while True:
            try:
                async for uid in self._engine.changes():
                    self._queue.add(uid)
            except (CloudMlError, OSError):  # the machine may be out of descriptors for a while
                logger.warning("the engine cannot be followed; trying again", exc_info=True)
                await asyncio.sleep(1.0)
