"""A turn of the event loop: what came in during one turn runs together, and is written together
at its end.
"""

import asyncio
from collections.abc import Callable

from cloud_ml.net.work_share import WorkShare

TURN_UNITS = 500
"""Units of work for what callers send in one turn; see ``WorkShare``."""


class LoopIteration:
    """Calls back what registered during a turn, once, after everything that arrived in it was read.

    No timer is involved, so a single caller waits for nobody. ``share`` bounds what is read from
    callers in a turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, units: int = TURN_UNITS) -> None:
        self._loop = loop
        self.share = WorkShare(units, loop)
        self.time = loop.time
        self._work: list[Callable[[], None]] = []
        self._writes: list[Callable[[], None]] = []
        self._armed = False

    def run(self, work: Callable[[], None]) -> None:
        """Call this after the reads of this turn."""
        self._work.append(work)
        self._arm()

    def write(self, flush: Callable[[], None]) -> None:
        """Call this after the work of this turn: a connection that has something to send."""
        self._writes.append(flush)
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        try:
            while self._work:
                work, self._work = self._work, []
                for each in work:
                    each()
        finally:
            # Also if work raises: the answers of other callers go out. A flush may register anew.
            self._armed = False
            writes, self._writes = self._writes, []
            for flush in writes:
                flush()
