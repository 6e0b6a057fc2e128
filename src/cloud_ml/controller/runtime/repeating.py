"""Something that is done again and again, and soon after somebody asks for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cloud_ml import timers

_TOGETHER_S = 0.05
logger = logging.getLogger(__name__)


class Repeating:
    """Does ``work`` every ``period_s``, and at once after ``soon``.

    Two passes begin at least a moment apart, and longer where a pass takes long, so that somebody
    who asks all the time takes half of a thread at most. What is asked for meanwhile is done once.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], period_s: float) -> None:
        self._work = work
        self._period_s = period_s
        self._hint = asyncio.Event()
        self._begun = self._ended = 0
        self._end = asyncio.Condition()

    async def soon(self, _uid: str = "") -> None:
        """Do not wait for the period."""
        self._hint.set()

    async def complete_pass(self) -> None:
        """Wait for the end of a pass that begins after this call, and that succeeds."""
        # Wait for a new pass: a running one may have read before this call.
        next_pass = self._begun + 1
        self._hint.set()
        async with self._end:
            await self._end.wait_for(lambda: self._ended >= next_pass)

    async def run(self) -> None:
        """Never returns."""
        loop = asyncio.get_running_loop()
        while True:
            began_at = loop.time()
            self._hint.clear()
            self._begun += 1
            try:
                await self._work()
            except Exception:
                logger.warning("this cannot be done now; trying again", exc_info=True)
            else:
                async with self._end:
                    self._ended = self._begun
                    self._end.notify_all()
            next_at = began_at + max(_TOGETHER_S, 2 * (loop.time() - began_at))
            await timers.wait_for_hint(self._hint, self._period_s)
            if self._hint.is_set():
                await asyncio.sleep(next_at - loop.time())
