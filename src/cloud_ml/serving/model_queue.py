"""The queue of one model: it runs one batch at a time, whichever signature the batch is for.

Runtimes promise nothing for two calls at once, and a Python model may keep something in ``self``. A
quick batch runs on the event loop and a long one in a thread, so only a queue for the whole model
keeps them apart.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.serving.signatures import Shape
from cloud_ml.serving.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from cloud_ml.serving.batching import Batcher, Outcome, Request
    from cloud_ml.serving.errors import ServingError

AHEAD_S = 0.02
"""The longest run that is given to a thread before its turn: until then nobody can be left out
of it any more.
"""
LOOP_BUDGET_S = 0.004
"""Seconds of quick runs after which the event loop reads and writes before it runs more of the
same model.
"""


class Batch:
    """Requests that run together. ``since`` is when the oldest of them came."""

    __slots__ = ("batcher", "requests", "rows", "since", "tails")

    def __init__(
        self,
        batcher: "Batcher",
        requests: "list[Request]",
        tails: tuple[Shape, ...],
        rows: int,
        since: float,
    ) -> None:
        self.batcher = batcher
        self.requests = requests
        self.tails = tails
        self.rows = rows
        self.since = since


Group = tuple["Batcher", tuple[Shape, ...], "list[Request]"]
"""Requests of one signature and the same shapes, in the order in which they came."""


class ModelQueue:
    """Takes the batches of all signatures of a model in turn. Everything but ``_run_in_thread``
    is the loop's.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        iteration: LoopIteration,
        aside: WorkerThreads,
        inline_s: float,
    ) -> None:
        self._loop = loop
        self._iteration = iteration
        self._aside = aside
        self._inline_s = inline_s
        self.groups: deque[Group] = deque()  # none of them is empty; the first is next
        self.running = False
        self.ahead: deque[Batch] = deque()  # what the thread takes next by itself: one at most
        self.wake: Callable[[], None] = partial(iteration.run, self.run_waiting)

    def run_waiting(self) -> None:
        """Run what waits; after it, what came meanwhile."""
        groups, spent = self.groups, 0.0
        while groups and not self.running:
            if spent > LOOP_BUDGET_S:
                self._loop.call_soon(self.wake)
                return
            batcher, tails, requests = group = groups.popleft()
            batch = batcher.take(tails, requests)
            if requests:
                groups.append(group)  # the others' turn
            if not batch.requests:
                continue
            least = batcher.least_seconds(tails, batch.rows)
            if least <= self._inline_s:
                batcher.deliver(batch, batcher.run(batch))
                spent += least
            else:
                self.running = True
                self._aside.run(partial(self._run_in_thread, batch))
        if groups and not self.ahead and self._next_is_full():
            self._prepare_next()

    def _prepare_next(self) -> None:
        """Take the batch that the thread runs after the present one."""
        batcher, tails, requests = group = self.groups.popleft()
        batch = batcher.take(tails, requests)
        if requests:
            self.groups.append(group)
        if batch.requests:
            self.ahead.append(batch)

    def _next_is_full(self) -> bool:
        """Whether what waits is a batch that nothing would be added to, and one that runs soon."""
        batcher, tails, requests = self.groups[0]
        limit = batcher.limit(tails, len(requests))
        if len(requests) < limit:
            return False
        return batcher.least_seconds(tails, max(limit, requests[0].rows)) <= AHEAD_S

    def _run_in_thread(self, batch: Batch) -> None:
        """Run a batch, and at once the one after it, unless others wait for the thread."""
        following: Batch | None = batch
        while following is not None:
            batch, done = following, following.batcher.run(following)
            # Taken before the loop is told, so that either this thread or the loop runs it and not
            # both. `popleft` is atomic, and the loop only appends while a batch runs.
            following = (
                self.ahead.popleft() if self.ahead and not self._aside.has_waiting_work else None
            )
            self._loop.call_soon_threadsafe(self._finish_batch, batch, done, following is not None)

    def _finish_batch(
        self, batch: Batch, done: "Outcome | list[Outcome | ServingError]", goes_on: bool
    ) -> None:
        if not goes_on:
            self.running = bool(self.ahead)
            if self.ahead:  # put there after the thread had looked
                self._aside.run(partial(self._run_in_thread, self.ahead.popleft()))
        batch.batcher.deliver(batch, done)
        if self.groups:
            self.wake()
