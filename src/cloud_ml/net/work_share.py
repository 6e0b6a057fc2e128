"""Bounds the work for peers in a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from cloud_ml.net.tuning import SLICE


class WorkShare:
    """Counts units of work; a unit is about a microsecond.

    A connection to a replica calls ``spend`` before each step. A connection of a caller begins with
    a slice, calls ``next_slice`` where that is used up, and ``charge`` at its end. Where nothing is
    left, either stops reading and registers with ``defer``; it goes on in a later turn, after
    others had theirs.

    Args:
        units: The share of one turn.
        loop: The event loop.
    """

    def __init__(self, units: int, loop: asyncio.AbstractEventLoop) -> None:
        self._units = units
        self._low = units // 2
        self.left = units
        """What may still be done in this turn. Light work is forgotten less often than each
        turn.
        """
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._armed = False

    def spend(self, units: int) -> bool:
        """Whether the work may be done in this turn. A large step may exceed the share; later
        turns pay for it.
        """
        if self.left <= 0:
            return False
        self.left -= units
        if not self._armed:
            self._arm()
        return True

    def charge(self, units: int) -> None:
        """Count work that was done."""
        self.left -= units
        if self.left < self._low and not self._armed:
            self._arm()

    def next_slice(self, units: int) -> int:
        """Count work that was done; how much more may be done in this turn."""
        self.charge(units)
        return SLICE if self.left > 0 else 0

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
        # A turn that took too much is paid for by the next ones; what is not used is not saved.
        self.left = min(self._units, self.left + self._units)
        waiting, self._waiting = self._waiting, deque()
        while waiting and self.left > 0:
            waiting.popleft()()
        # Who was deferred again goes behind those that have not had their turn.
        waiting.extend(self._waiting)
        self._waiting = waiting
        if (waiting or self.left < self._units) and not self._armed:
            self._arm()
