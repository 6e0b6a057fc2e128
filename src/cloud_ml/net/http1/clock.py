"""What time it is, looked at once a second for everybody."""

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate


class Clock:
    """Keeps the ``Date`` of answers, and calls back every second who looks after slow peers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: list[Callable[[float], None]] = []
        self._next: asyncio.TimerHandle | None = None
        self.date = b""
        self.now = 0.0

    def every_second(self, callback: Callable[[float], None]) -> None:
        """Call this with the loop's time, again and again."""
        self._callbacks.append(callback)

    def start(self) -> None:
        """Begin; ``stop`` ends it."""
        self.now = self._loop.time()
        self.date = b"Date: %b\r\n" % formatdate(time.time(), usegmt=True).encode()
        for callback in self._callbacks:
            callback(self.now)
        self._next = self._loop.call_later(1.0, self.start)

    def stop(self) -> None:
        """No more callbacks."""
        if self._next is not None:
            self._next.cancel()
