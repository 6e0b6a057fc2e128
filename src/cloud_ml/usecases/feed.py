"""The changes of all records of a kind, or of what else has revisions, as one stream. A watcher may
join at any revision and come back later.

The stream is the store's change feed. Recent changes are kept, so that each is read once, however
many watch. A watcher that is behind reads for itself. No watcher has a queue: a slow one is told
the newest state of what changed meanwhile, and costs nothing. A record may take a megabyte, so what
is kept and what is read ahead is bounded by its size as well as its number.
"""

from __future__ import annotations

import abc
import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cloud_ml import timers
from cloud_ml.domain.record_sizes import bytes_of
from cloud_ml.domain.records import Kind, Record
from cloud_ml.errors import CloudMlError, StartAgain
from cloud_ml.settings.sizes import MIB
from cloud_ml.state.base import StateStore
from cloud_ml.state.epochs import epoch_of
from cloud_ml.usecases.changes import threadsafe
from cloud_ml.usecases.offload import Offload

_PAGE = 200
_PAGE_BYTES = 256 * 1024
"""What a watcher that is behind reads ahead: one more record at most."""
_KEPT = 1000
_KEPT_BYTES = 16 * MIB
_SMALL_RECORD = 4 * 1024
_NOTHING_KEPT = 2**62

S = TypeVar("S")
T = TypeVar("T")
M = TypeVar("M")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FeedChange:
    """Something of an organisation changed at ``revision``.

    Without a ``uid`` it only says how far the store was read.
    """

    revision: int
    uid: str
    org: str
    size: int = field(default=0, kw_only=True)
    """About how many bytes it takes."""

    @property
    def gone(self) -> bool:
        """Whether it was removed for good."""
        return False


C = TypeVar("C", bound=FeedChange)


@dataclass(frozen=True, slots=True)
class RecordChange(FeedChange, Generic[S, T]):
    """A record changed. ``record`` is how it stands, at ``revision`` or later; ``None`` when it is
    gone.
    """

    name: str
    record: Record[S, T] | None

    @property
    def gone(self) -> bool:
        """Whether the record was removed for good."""
        return self.record is None


def check_epoch(after: int, newest: int, *, known: int | None = None) -> None:
    """Refuse to go on behind a revision of a database that was replaced by a backup since.

    Args:
        after: The revision that a watcher has seen.
        newest: The store's.
        known: That of the one record that is watched: what is not newer is no news of another
            history.

    Raises:
        StartAgain: It is of another epoch, or of the future.
    """
    if known is not None and after <= known:
        return
    if epoch_of(after) != epoch_of(newest) or after > newest:
        raise StartAgain(
            f"the database was restored from a backup since revision {after}",
            field="after",
            value=after,
            hint="List again, and watch from the revision of the list.",
        )


class ChangeFeed(abc.ABC, Generic[C]):
    """Follows changes while somebody watches, and not otherwise. Belongs to one event loop.

    Args:
        store: Whose changes they are.
        name: What changes.
        offload: The threads that read.
        poll_s: The longest that a change of another server stays unnoticed.
    """

    def __init__(
        self, store: StateStore, name: str, offload: Offload, *, poll_s: float = 1.0
    ) -> None:
        self._name = name
        self._store = store
        self._offload = offload
        self._poll_s = poll_s
        self._recent: deque[C] = deque()
        self._recent_bytes = 0
        # The buffer is from an earlier follower, and the store has changed since.
        self._complete_from = _NOTHING_KEPT
        self._newest = 0
        self._watchers: set[asyncio.Event] = set()
        self._follower: asyncio.Task[None] | None = None
        self._making: dict[Hashable, asyncio.Task[Any]] = {}

    @property
    def watchers(self) -> int:
        """How many watch at present."""
        return len(self._watchers)

    @property
    def kept_bytes(self) -> int:
        """About how much memory the changes take that all watchers share."""
        return self._recent_bytes

    async def watch(
        self, scope: str | None, *, uid: str | None = None, after: int, heartbeat_s: float
    ) -> AsyncGenerator[C | None]:
        """What changes after the revision ``after``; ``None`` now and then, when nothing does.
        Never ends.

        Args:
            scope: Only what is of this organisation; ``None`` for all.
            uid: Only this one.
            after: Where to begin; what changed since is told first.
            heartbeat_s: The longest silence.
        """
        woken = asyncio.Event()
        self._watchers.add(woken)
        try:
            if self._follower is None:
                self._complete_from = _NOTHING_KEPT
                self._follower = asyncio.get_running_loop().create_task(
                    self._follow(), name=f"{self._name}-feed"
                )
            while True:
                # Clear before reading: a change during the read ends the next wait.
                woken.clear()
                changes = await self._since(after, scope, uid)
                for one in changes:
                    if one.uid and scope in (None, one.org) and uid in (None, one.uid):
                        yield one
                if changes:
                    after = changes[-1].revision
                    continue
                try:
                    async with asyncio.timeout(heartbeat_s):
                        await woken.wait()
                except TimeoutError:
                    yield None
        finally:
            self._watchers.discard(woken)
            if not self._watchers and self._follower is not None:
                self._follower.cancel()
                self._follower = None

    async def make_once(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, M]]) -> M:
        """What ``make`` returns. All who ask with the same ``key`` while it runs get the same: a
        change is told to all watchers at the same moment, and may take a look at the store.
        """
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(make())
            task.add_done_callback(lambda made: self._end_making(key, made))
        # One who goes does not end it for the others.
        made: M = await asyncio.shield(task)
        return made

    def _end_making(self, key: Hashable, made: asyncio.Task[Any]) -> None:
        self._making.pop(key, None)
        if not made.cancelled():
            made.exception()  # seen, should all who have asked be gone

    @abc.abstractmethod
    def _look(self, after: int, scope: str | None = None, uid: str | None = None) -> Sequence[C]:
        """What the store tells next behind ``after``, of ``scope`` and ``uid`` if they are named;
        nothing where nothing is newer. Blocking.
        """

    async def _since(self, after: int, scope: str | None, uid: str | None) -> Sequence[C]:
        if after < self._complete_from:
            return await self._offload(self._look, after, scope, uid)
        return [one for one in self._recent if one.revision > after]

    async def _follow(self) -> None:
        hint = asyncio.Event()
        unsubscribe = self._store.subscribe(threadsafe(asyncio.get_running_loop(), hint))
        try:
            while True:
                hint.clear()
                try:
                    if self._complete_from == _NOTHING_KEPT:
                        await self._begin()
                    await self._read()
                except CloudMlError:
                    logger.warning(
                        "the feed of changes cannot be read; trying again", exc_info=True
                    )
                await timers.wait_for_hint(hint, self._poll_s)
        finally:
            unsubscribe()

    async def _begin(self) -> None:
        """From here on what happens is kept; who watches already has read what came before, or
        does so now.
        """
        self._recent.clear()
        self._recent_bytes = 0
        self._newest = self._complete_from = await self._offload(self._store.revision)
        for woken in self._watchers:
            woken.set()

    async def _read(self) -> None:
        while changes := await self._offload(self._look, self._newest):
            self._recent.extend(changes)
            self._recent_bytes += sum(one.size for one in changes)
            self._newest = changes[-1].revision
            while len(self._recent) > _KEPT or self._recent_bytes > _KEPT_BYTES:
                oldest = self._recent.popleft()
                self._recent_bytes -= oldest.size
                self._complete_from = oldest.revision
            for woken in self._watchers:
                woken.set()


class RecordFeed(ChangeFeed[RecordChange[S, T]], Generic[S, T]):
    """The changes of all records of a kind."""

    def __init__(
        self, store: StateStore, kind: Kind[S, T], offload: Offload, *, poll_s: float = 1.0
    ) -> None:
        super().__init__(store, kind.name, offload, poll_s=poll_s)
        self._kind = kind

    def _look(
        self, after: int, scope: str | None = None, uid: str | None = None
    ) -> Sequence[RecordChange[S, T]]:
        """What the store tells next, of records of ``scope`` and ``uid`` if they are named.

        Changes of others count, too: they move whoever reads along.
        """
        changes: list[RecordChange[S, T]] = []
        last, size = after, 0
        for change in self._store.changes(after, limit=_PAGE):
            if size >= _PAGE_BYTES:
                break
            last = change.revision
            if (
                change.kind == self._kind.name
                and scope in (None, change.org)
                and uid in (None, change.uid)
            ):
                record = None if change.gone else self._store.get(self._kind, change.uid)
                if change.gone or record is not None:
                    changes.append(
                        RecordChange(
                            last,
                            change.uid,
                            change.org,
                            change.name,
                            record,
                            size=_size_of(record),
                        )
                    )
                    size += changes[-1].size
        if last > after and (not changes or changes[-1].revision < last):
            changes.append(RecordChange(last, "", "", "", None))
        return changes


def _size_of(record: Record[Any, Any] | None) -> int:
    """About how many bytes a record takes."""
    return 0 if record is None else _SMALL_RECORD + bytes_of(record.spec)
