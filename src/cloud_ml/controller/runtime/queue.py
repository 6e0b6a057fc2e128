"""A queue that holds each key once, with delays.

A key that is added while a worker has it is handed out again when that worker is done: two workers
never have the same key, and no wake-up is lost. Only the echo of what a worker has seen or written
itself wakes nobody, be it that it comes when the worker is done. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable

_REMEMBERED = 4096
"""Of how many keys it is kept up to where they were looked at. An echo comes within moments."""


class KeyedQueue:
    """Keys that want a look, each at most once.

    Args:
        now: A clock in seconds that never goes back; the event loop's by default.
    """

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now or asyncio.get_running_loop().time
        self._ready: deque[str] = deque()
        self._waiting: set[str] = set()  # what _ready holds
        self._taken: set[str] = set()
        self._again: dict[
            str, int | None
        ] = {}  # the newest revision that asks; None asks whatever was seen
        # Up to where keys were looked at, the latest last.
        self._done_revisions: dict[str, int] = {}
        self._later: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}  # the time that counts; other entries of _later are void
        self._numbers = itertools.count()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def add(self, key: str, revision: int | None = None) -> None:
        """Ask for a look now; with a ``revision``, at that one or a newer one."""
        if revision is not None and revision <= self._done_revisions.get(key, 0):
            return
        # Drop the timer: the coming pass decides when the next one is due.
        self._due.pop(key, None)
        if key in self._taken:
            self._again[key] = revision if self._again.get(key, 0) is not None else None
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._wake_one()

    def add_after(self, key: str, delay_s: float) -> None:
        """Ask for a look after ``delay_s``, unless one comes before. Of several times the
        earliest counts.
        """
        due = self._now() + max(0.0, delay_s)
        if key not in self._waiting and due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._later, (due, next(self._numbers), key))
            self._alarm(due, self._now())

    def drop_later(self, key: str) -> None:
        """Nothing is due any more of what was asked for with a delay."""
        self._due.pop(key, None)

    def is_taken(self, key: str) -> bool:
        """Whether a worker is at it."""
        return key in self._taken

    async def take(self) -> str:
        """The next key; nobody else gets it until ``done``."""
        while True:
            self._promote()
            if self._ready:
                key = self._ready.popleft()
                self._waiting.discard(key)
                self._taken.add(key)
                return key
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # this worker was meant, and is leaving
                raise

    def done(self, key: str, done_revision: int = 0) -> None:
        """The worker has finished with the key, as it was at the revision ``done_revision``."""
        self._taken.discard(key)
        if done_revision:
            self._remember(key, done_revision)
        if key in self._again:
            revision = self._again.pop(key)
            if revision is None or revision > done_revision:
                self.add(key)

    def __len__(self) -> int:
        return len(self._ready) + len(self._taken)

    def _remember(self, key: str, done_revision: int) -> None:
        newest = max(done_revision, self._done_revisions.pop(key, 0))
        self._done_revisions[key] = newest
        if len(self._done_revisions) > _REMEMBERED:
            del self._done_revisions[next(iter(self._done_revisions))]

    def _wake_one(self) -> None:
        """A key is ready, so one worker is enough: waking all of them for each costs more than
        most looks.
        """
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _promote(self) -> None:
        """Move what is due to the ready ones, and see to it that the next is when it is due."""
        now = self._now()
        while self._later:
            due, _, key = self._later[0]
            if self._due.get(key) != due:
                heapq.heappop(self._later)
            elif due <= now:
                heapq.heappop(self._later)
                self.add(key)
            else:
                self._alarm(due, now)
                return

    def _alarm(self, due: float, now: float) -> None:
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer, self._timer_due = (
            asyncio.get_running_loop().call_later(due - now, self._ring),
            due,
        )

    def _ring(self) -> None:
        self._timer = None
        self._promote()
