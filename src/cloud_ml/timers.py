"""Periods that end together: who looks again every few seconds does so in the same moment as
everybody else.

A process that has nothing to do is woken once for all of them, and not once for each.
"""

from __future__ import annotations

import asyncio
import threading


async def wait_for_hint(hint: asyncio.Event, period_s: float) -> None:
    """Wait until ``hint`` is set, at most until the next multiple of ``period_s`` in the time of
    the loop. One waits for a hint at a time, and looks at what it is about whatever ends the wait.
    """
    if hint.is_set():
        return
    waiting = _period_timer(period_s).join(hint)
    try:
        await hint.wait()
    finally:
        is_over = hint not in waiting
        waiting.discard(hint)
    if is_over:
        hint.clear()


class _PeriodTimer:
    """Ends a period for all who wait for its end, with one timer.

    A timer for each wait would be set and cancelled some fifteen times for each job, as most waits
    end by a hint.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float) -> None:
        self._loop = loop
        self._period_s = period_s
        self._waiting: set[asyncio.Event] = set()
        self._is_set = False

    def join(self, hint: asyncio.Event) -> set[asyncio.Event]:
        """Set a hint at the end of the period; returns who waits, without it from then on."""
        if not self._is_set:
            self._is_set = True
            self._loop.call_at(_next(self._loop, self._period_s), self._ring)
        self._waiting.add(hint)
        return self._waiting

    def _ring(self) -> None:
        self._is_set = False
        while self._waiting:
            self._waiting.pop().set()


class _LoopTimers(threading.local):
    """Those of the loop of a thread, by their periods."""

    loop: asyncio.AbstractEventLoop | None = None
    by_period: dict[float, _PeriodTimer]


_timers = _LoopTimers()


def _period_timer(period_s: float) -> _PeriodTimer:
    loop = asyncio.get_running_loop()
    if _timers.loop is not loop:
        _timers.loop, _timers.by_period = loop, {}
    timer = _timers.by_period.get(period_s)
    if timer is None:
        timer = _timers.by_period[period_s] = _PeriodTimer(loop, period_s)
    return timer


async def wait_until(hint: asyncio.Event, moment: float) -> None:
    """The same until ``moment`` in the time of the loop, with a timer of its own."""
    if hint.is_set():
        return
    is_over = False

    def ring() -> None:
        nonlocal is_over
        is_over = True
        hint.set()

    # ``asyncio.timeout`` costs twice as much, and the server waits so for each change of a job.
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


def _next(loop: asyncio.AbstractEventLoop, period_s: float) -> float:
    now = loop.time()
    return now - now % period_s + period_s
