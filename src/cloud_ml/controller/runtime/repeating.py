"""Something that is done again and again, and soon after somebody asks for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cloud_ml import beats

_TOGETHER_S = 0.05
logger = logging.getLogger(__name__)


class Repeating:
    """Does ``work`` every ``period_s``, and a moment after ``soon``: what is asked for in that moment is done once."""

    def __init__(self, work: Callable[[], Awaitable[None]], period_s: float) -> None:
        self._work = work
        self._period_s = period_s
        self._asked = asyncio.Event()

    async def soon(self, _uid: str = "") -> None:
        """Do not wait for the period."""
        self._asked.set()

    async def run(self) -> None:
        """Never returns."""
        while True:
            self._asked.clear()
            try:
                await self._work()
            except Exception:
                logger.warning("this cannot be done now; trying again", exc_info=True)
            await beats.hinted(self._asked, self._period_s)
            if self._asked.is_set():
                await asyncio.sleep(_TOGETHER_S)
