"""Time and threads for what decides without either."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from cloud_ml.serving.errors import ModelFailed

T = TypeVar("T")


class TaskRunner(Protocol):
    """What happens outside of the loop's thread, and later; tests have one that they move by
    hand.
    """

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call this after a while."""

    def load(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Do work of loading or closing elsewhere; then call back here with what it gave or
        raised.
        """

    def look(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """The same for looks at file systems, which must not wait for loads."""


class LoopTaskRunner:
    """The world of a running server.

    Its threads are daemons: a load that takes minutes, or a file system that does not answer, holds
    up nobody's end. How many load at once is decided elsewhere, so each piece of work has a thread
    of its own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call)

    def load(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self._run_in_thread("load", work, done)

    def look(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self._run_in_thread("look", work, done)

    def _run_in_thread(
        self, name: str, work: Callable[[], T], done: Callable[[T | Exception], None]
    ) -> None:
        def run() -> None:
            made: T | Exception
            try:
                made = work()
            except Exception as error:
                made = error
            except SystemExit as error:  # of a model's own code, and not for us
                made = ModelFailed(f"the model wanted to end the program: SystemExit {error}")
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(done, made)

        threading.Thread(target=run, name=name, daemon=True).start()
