"""Threads that make calls for an event loop.

What the standard library's executor does for any program (futures that lock, wait and are copied
into those of the loop) costs twice as much as this, and the server makes some twenty calls for each
job.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_STUCK_S = 10.0
"""A call that takes longer is taken not to end: its thread is replaced."""
_REPLACEMENTS = 4
"""Replacements for each thread, at most."""
_Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class ThreadPool:
    """At most so many threads, each started when it is needed first.

    A call that does not end would take one of them for ever. So threads that have been at one call
    for too long do not count, up to a bound; when such a call ends after all, a thread that is too
    many goes.

    Args:
        most: How many.
        name: What they are called, with a number behind it.
        stuck_s: How long a call may take before its thread is replaced; infinite for never.
    """

    def __init__(self, most: int, name: str, *, stuck_s: float = _STUCK_S) -> None:
        self._most = most
        self._stuck_s = stuck_s
        self._numbers = itertools.count()
        self._began: dict[threading.Thread, float] = {}
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._free = 0  # threads that wait for a call, less the calls that wait for a thread
        self._closed = False

    def do(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Make the call on a thread. It runs to its end, also if nobody waits for the future any
        more.

        Raises:
            RuntimeError: The pool has been closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise RuntimeError("no calls are made any more")
            if self._free > 0 or not self._may_start():
                self._free -= 1
            else:
                self._start()
            self._calls.put((loop, future, call))
        return future

    def close(self, *, drop_waiting: bool = False) -> None:
        """Wait for all calls that end, and let the threads go.

        With ``drop_waiting``, calls that no thread has begun are not made: their futures are
        cancelled.
        """
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            if drop_waiting:
                self._drop_waiting()
            for _ in threads:
                self._calls.put(None)
        until = time.monotonic() + self._stuck_s
        for thread in threads:
            endless = self._stuck_s == math.inf
            thread.join(None if endless else max(0.0, until - time.monotonic()))

    def _drop_waiting(self) -> None:
        with contextlib.suppress(Empty):
            while (task := self._calls.get_nowait()) is not None:
                loop, future, _ = task
                with contextlib.suppress(RuntimeError):  # the loop is over
                    loop.call_soon_threadsafe(future.cancel)

    def _may_start(self) -> bool:
        count = len(self._threads)
        if count < self._most:
            return True
        return count < self._most * (1 + _REPLACEMENTS) and count - self._stuck() < self._most

    def _stuck(self) -> int:
        late = time.monotonic() - self._stuck_s
        return sum(began < late for began in list(self._began.values()))

    def _start(self) -> None:
        thread = threading.Thread(
            # Use daemon threads: a call that never ends must not keep the process alive.
            target=self._work,
            name=f"{self._name}_{next(self._numbers)}",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        own = threading.current_thread()
        while (task := self._calls.get()) is not None:
            loop, future, call = task
            result, error = None, None
            self._began[own] = time.monotonic()
            try:
                result = call()
            except BaseException as caught:  # told to who waits, whatever it is
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop is over, and with it who waited
                loop.call_soon_threadsafe(_settle, future, result, error)
            # Drop all references to the finished call while the thread waits for the next one.
            del (
                task,
                future,
                call,
                result,
                error,
            )
            with self._lock:
                del self._began[own]
                if (
                    len(self._threads) > self._most
                    and len(self._threads) - self._stuck() > self._most
                ):
                    self._threads.remove(own)
                    return
                self._free += 1


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # who waited was cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
