"""Wake-ups within one process: a hint after each commit, so that followers need not wait for
their next poll.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Wakeups:
    """Who wants to be woken. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakes: dict[object, Callable[[], None]] = {}

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` from now on; returns the way to unsubscribe (twice is harmless)."""
        ticket = object()
        with self._lock:
            self._wakes[ticket] = wake

        def unsubscribe() -> None:
            with self._lock:
                self._wakes.pop(ticket, None)

        return unsubscribe

    def notify(self) -> None:
        """Wake everybody. A follower that fails is logged: the commit it hears of stands."""
        with self._lock:
            wakes = tuple(self._wakes.values())
        for wake in wakes:
            try:
                wake()
            except Exception:
                logger.exception("A follower of the state store failed to wake")
