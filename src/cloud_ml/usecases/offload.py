"""Blocking calls (the store, the object store) from an event loop."""

from __future__ import annotations

import asyncio
import functools
import math
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from cloud_ml.usecases.thread_pool import ThreadPool

P = ParamSpec("P")
T = TypeVar("T")


class Offload:
    """Runs blocking calls on a few threads of its own.

    Few on purpose: the store has one writer at a time anyway, and a bounded pool makes a flood wait
    here, not inside the database. Calls whose length a tenant decides have other threads, and each
    tenant has only its ``share`` of those: whoever has the server read a terabyte of holes makes
    nobody else wait. Of all who upload and download, ``moving`` have a piece on its way.
    """

    def __init__(
        self, threads: int = 8, *, long_threads: int = 16, share: int = 4, moving: int = 4
    ) -> None:
        self._pool = ThreadPool(threads, "blocking")
        self._long = ThreadPool(long_threads, "long", stuck_s=math.inf)
        self._share = share
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._moving = asyncio.Semaphore(moving)
        self._stopping = threading.Event()

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``function(*args, **kwargs)``, called on a thread.

        A caller that is cancelled stops waiting; the call itself runs to its end.
        """
        return await self._pool.do(functools.partial(function, *args, **kwargs))

    async def moving(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a piece of many bytes on its way: a few at once, whoever they belong to.

        The event loop sends what comes back, and would do nothing else while the next piece of
        everybody lies there.
        """
        async with self._moving:
            return await self(function, *args, **kwargs)

    async def long(
        self, whose: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The same for what may take long: reading or copying whole objects, walking folders,
        waiting for locks.

        Args:
            whose: The organisation that has its share of such threads; the next call waits for its
                turn.
            function: Called on a thread.
            args: Its arguments.
            kwargs: Its arguments by name.
        """
        if (turns := self._semaphores.get(whose)) is None:
            turns = self._semaphores[whose] = asyncio.Semaphore(self._share)
        await turns.acquire()
        try:
            running = self._long.do(functools.partial(function, *args, **kwargs))
        except BaseException:
            turns.release()
            raise
        # Release when the call itself ends, not when its caller stops waiting.
        running.add_done_callback(lambda _: turns.release())
        return await asyncio.shield(running)

    def stopping(self) -> bool:
        """Whether the server is going down: what takes long asks now and then, and gives up."""
        return self._stopping.is_set()

    def close(self) -> None:
        """Let calls under way end and the threads go."""
        self._stopping.set()
        self._long.close(drop_waiting=True)
        self._pool.close()
