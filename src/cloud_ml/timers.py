"""Periods that end together: who looks again every few seconds does so in the same moment as
everybody else.

A process that has nothing to do is woken once for all of them, and not once for each.
"""

from __future__ import annotations

import asyncio
import contextlib


async def wait_for_hint(hint: asyncio.Event, period_s: float) -> None:
    """Wait until ``hint`` is set, at most until the next multiple of ``period_s`` in the time of
    the loop.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(_next(period_s)):
            await hint.wait()


async def pause(period_s: float) -> None:
    """Wait until the next multiple of ``period_s``."""
    await wait_for_hint(asyncio.Event(), period_s)


def _next(period_s: float) -> float:
    now = asyncio.get_running_loop().time()
    return now - now % period_s + period_s
