"""Bounds the work for peers in a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class WorkShare:
    """Counts units of work; a unit is about a microsecond.

    A connection calls ``spend`` before each step. Where that returns false, it stops reading and registers with
    ``defer``; it goes on in a later turn, after other services had theirs.

    Args:
        units: The share of one turn.
        loop: The event loop.
    """

    def __init__(self, units: int, loop: asyncio.AbstractEventLoop) -> None:
        self._units = units
        self._left = units
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._armed = False

    def spend(self, units: int) -> bool:
        """Whether the work may be done in this turn. A large step may exceed the share; later turns pay for it."""
        if self._left <= 0:
            return False
        self._left -= units
        if not self._armed:
            self._arm()
        return True

    def defer(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` in a later turn. It may be deferred again."""
        self._waiting.append(resume)
        if not self._armed:
            self._arm()

    def _arm(self) -> None:
        self._armed = True
        self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._armed = False
        self._left = min(self._units, self._left + self._units)
        waiting, self._waiting = self._waiting, deque()
        while waiting and self._left > 0:
            waiting.popleft()()
        waiting.extend(self._waiting)
        self._waiting = waiting
        if (waiting or self._left < self._units) and not self._armed:
            self._arm()
