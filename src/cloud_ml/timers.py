"""Periods that end together: who looks again every few seconds does so in the same moment as
everybody else.

A process that has nothing to do is woken once for all of them, and not once for each.
"""

from __future__ import annotations

import asyncio


async def wait_for_hint(hint: asyncio.Event, period_s: float) -> None:
    """Wait until ``hint`` is set, at most until the next multiple of ``period_s`` in the time of
    the loop. One waits for a hint at a time, and looks at what it is about whatever ends the wait.
    """
    await wait_until(hint, _next(period_s))


async def wait_until(hint: asyncio.Event, moment: float) -> None:
    """The same until ``moment`` in the time of the loop."""
    if hint.is_set():
        return
    is_over = False

    def ring() -> None:
        nonlocal is_over
        is_over = True
        hint.set()

    # ``asyncio.timeout`` costs twice as much, and the server waits so some twenty times for a job.
    timer = asyncio.get_running_loop().call_at(moment, ring)
    try:
        await hint.wait()
    finally:
        timer.cancel()
    if is_over:
        hint.clear()


async def pause(period_s: float) -> None:
    """Wait until the next multiple of ``period_s``."""
    await wait_for_hint(asyncio.Event(), period_s)


def _next(period_s: float) -> float:
    now = asyncio.get_running_loop().time()
    return now - now % period_s + period_s
