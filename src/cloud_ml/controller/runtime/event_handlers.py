"""Tells others of records that changed. A handler that fails is repeated, and one that hangs
holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

EventHandler = Callable[[str], Awaitable[None]]
"""Told the uid of a record that changed."""

_Key = tuple[EventHandler, str]
logger = logging.getLogger(__name__)


class EventHandlerRunner:
    """Runs handlers, one at a time for each record. Belongs to one event loop.

    Args:
        limit_s: How long the caller waits for a handler. After that the handler goes on in the
            background.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._due: dict[_Key, None] = {}

    async def give(self, handler: EventHandler, uid: str) -> None:
        """Tell that a record changed. A handler still running read the older state: another one
        follows it.
        """
        key = handler, uid
        if key in self._running:
            self._due[key] = None
            return
        task = self._running[key] = asyncio.create_task(self._run(key))
        await asyncio.wait([task], timeout=self._limit_s)
        if not task.done():
            logger.warning(
                "a change is followed for longer than %g s", self._limit_s, extra={"uid": uid}
            )

    async def repeat(self) -> None:
        """Repeat what failed, and what changed again while its handler ran."""
        due, self._due = self._due, {}
        for handler, uid in due:
            await self.give(handler, uid)

    def close(self) -> None:
        """Stop what still runs."""
        for task in self._running.values():
            task.cancel()

    async def _run(self, key: _Key) -> None:
        handler, uid = key
        try:
            await handler(uid)
        except Exception:
            logger.warning(
                "a change cannot be followed; trying again", exc_info=True, extra={"uid": uid}
            )
            self._due[key] = None
        finally:
            del self._running[key]
