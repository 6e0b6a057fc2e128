"""Lets requests wait for a change of one record: the store's wake-ups, handed out by uid."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from cloud_ml import timers
from cloud_ml.errors import CloudMlError
from cloud_ml.state.base import Change, StateStore
from cloud_ml.usecases.short_reads import Reads


class Revised(Protocol):
    """What has another revision after each change."""

    @property
    def revision(self) -> int:
        """The newest."""


R = TypeVar("R", bound=Revised)

_PAGE = 200

logger = logging.getLogger(__name__)


class Watch:
    """One request's interest in one record.

    Open it first and read the record then: whatever happens after the reading ends the next
    ``wait``.
    """

    def __init__(self, hub: ChangeHub) -> None:
        self._hub = hub
        self._changed = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether the server is going down: waiting makes no sense any more."""
        return self._hub.closed

    def wake(self) -> None:
        """End the wait under way, or the next one."""
        self._changed.set()

    async def wait(self, timeout_s: float) -> None:
        """Return soon after a change, at the latest after ``timeout_s``. Wakes for nothing now
        and then.
        """
        if not self.closed:
            await timers.wait_until(self._changed, asyncio.get_running_loop().time() + timeout_s)
        self._changed.clear()


class ChangeHub:
    """Follows the store's feed while somebody watches, and not otherwise.

    Wake-ups are hints; ``poll_s`` is the longest a change of another server stays unnoticed.
    Belongs to one event loop.
    """

    def __init__(self, store: StateStore, read: Reads, *, poll_s: float = 1.0) -> None:
        self._closing = asyncio.Event()
        self._store = store
        self._read = read
        self._poll_s = poll_s
        self._watches: dict[str, set[Watch]] = {}
        self._follower: asyncio.Task[None] | None = None
        self._has_follower = False

    @property
    def closed(self) -> bool:
        """Whether the server is going down."""
        return self._closing.is_set()

    async def until_closed(self) -> None:
        """Return when the server is going down."""
        await self._closing.wait()

    @contextlib.contextmanager
    def watch(self, uid: str) -> Iterator[Watch]:
        """Watch the record of that uid while the block runs."""
        watch = Watch(self)
        self._watches.setdefault(uid, set()).add(watch)
        if self._follower is None and not self.closed:
            self._follower = asyncio.get_running_loop().create_task(
                self._follow(), name="change-hub"
            )
        try:
            yield watch
        finally:
            others = self._watches[uid]
            others.discard(watch)
            if not others:
                del self._watches[uid]

    async def newer(self, uid: str, revision: int, read: Callable[[], R], *, timeout_s: float) -> R:
        """The record once its revision is another one than ``revision``, or as it stands after
        ``timeout_s``.

        It is a lower one where the database was restored from a backup.

        Raises whatever ``read`` does, which looks at one record.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        with self.watch(uid) as watch:
            while True:
                record = await self._read(read)
                left = deadline - asyncio.get_running_loop().time()
                if record.revision != revision or left <= 0 or self.closed:
                    return record
                await watch.wait(left)

    @contextlib.contextmanager
    def follower(self) -> Iterator[Callable[[Sequence[Change]], None]]:
        """While the block runs, who follows the feed in this loop tells what it reads: commits need
        not be read once more. The hub goes on to look every ``poll_s``.
        """
        self._has_follower = True
        try:
            yield self._wake
        finally:
            self._has_follower = False
            self._wake_all()  # what is not told any more may have been missed

    def close(self) -> None:
        """End every wait, now and in future. Call it in the hub's event loop."""
        self._closing.set()
        if self._follower is not None:
            self._follower.cancel()
        self._wake_all()

    async def _follow(self) -> None:
        hint = asyncio.Event()
        wake = threadsafe(asyncio.get_running_loop(), hint)

        def wake_unless_followed() -> None:
            if not self._has_follower:
                wake()

        unsubscribe = self._store.subscribe(wake_unless_followed)
        cursor: int | None = None
        try:
            while self._watches:
                # Clear before reading: a commit during the read wakes the next round.
                hint.clear()
                cursor = await self._look(cursor)
                await timers.wait_for_hint(hint, self._poll_s)
        finally:
            unsubscribe()
            self._follower = None

    async def _look(self, cursor: int | None) -> int | None:
        """Wake whoever watches what changed after ``cursor``; returns the next one."""
        try:
            if cursor is None:  # whatever happened up to this revision may have been missed
                cursor = await self._read(self._store.revision)
                self._wake_all()
            while True:
                changes = await self._read(self._store.changes, cursor, limit=_PAGE)
                self._wake(changes)
                if changes:
                    cursor = changes[-1].revision
                if len(changes) < _PAGE:
                    break
        except CloudMlError:
            logger.warning(
                "the feed of changes cannot be read; watchers look for themselves", exc_info=True
            )
            self._wake_all()
        return cursor

    def _wake(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for watch in self._watches.get(change.uid, ()):
                watch.wake()

    def _wake_all(self) -> None:
        for watches in self._watches.values():
            for watch in watches:
                watch.wake()


def threadsafe(loop: asyncio.AbstractEventLoop, hint: asyncio.Event) -> Callable[[], None]:
    """A way to set ``hint`` from any thread. Until the loop has got to it, further calls cost
    next to nothing.
    """
    on_its_way = False

    def arrive() -> None:
        nonlocal on_its_way
        on_its_way = False  # before the hint is set: whoever comes now asks for another one
        hint.set()

    def wake() -> None:
        nonlocal on_its_way
        if not on_its_way:
            on_its_way = True
            try:  # noqa: SIM105 - a context costs three calls, for each commit and follower
                loop.call_soon_threadsafe(arrive)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

    return wake
