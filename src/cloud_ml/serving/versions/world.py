"""Time and threads for what decides without either."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class World(Protocol):
    """What happens outside of the loop's thread, and later; tests have one that they move by hand."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call this after a while."""

    def load(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Do work of loading or closing elsewhere; then call back here with what it gave or raised."""

    def look(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """The same for looks at file systems, which must not wait for loads."""


class LoopWorld:
    """The world of a running server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, load_threads: int) -> None:
        self._loop = loop
        self._loaders = ThreadPoolExecutor(load_threads, "load")
        self._watcher = ThreadPoolExecutor(1, "watch")

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call)

    def load(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self._aside(self._loaders, work, done)

    def look(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self._aside(self._watcher, work, done)

    def close(self) -> None:
        """Begin nothing more."""
        self._loaders.shutdown(wait=False, cancel_futures=True)
        self._watcher.shutdown(wait=False, cancel_futures=True)

    def _aside(self, threads: Executor, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        def run() -> None:
            made: T | Exception
            try:
                made = work()
            except Exception as error:
                made = error
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(done, made)

        threads.submit(run)
