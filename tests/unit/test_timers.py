"""Who waits for a while wakes together with all others who do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cloud_ml import timers

pytestmark = pytest.mark.anyio
LONG_S, SOON_S = 3_600.0, 0.001


async def test_who_began_at_different_times_wakes_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, ends = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def noted(when: float, callback: Any, *given: Any, **named: Any) -> asyncio.TimerHandle:
        if when > loop.time() + 2 * SOON_S:
            ends.append(when)
        return call_at(when, callback, *given, **named)

    monkeypatch.setattr(loop, "call_at", noted)
    waiting, begun = [], loop.time()
    for _ in range(5):
        waiting.append(asyncio.ensure_future(timers.pause(LONG_S)))
        await asyncio.sleep(SOON_S)
    for each in waiting:
        each.cancel()
    assert len(ends) == 1, "one timer for all"
    assert begun < ends[0] <= begun + LONG_S
    assert ends[0] / LONG_S == pytest.approx(round(ends[0] / LONG_S))


async def test_all_who_wait_wake_when_the_period_ends() -> None:
    hints = [asyncio.Event() for _ in range(5)]
    async with asyncio.timeout(LONG_S):
        await asyncio.gather(*(timers.wait_for_hint(hint, 0.05) for hint in hints))
        await timers.pause(0.05)  # the next period has a timer of its own
    assert not any(hint.is_set() for hint in hints)


async def test_who_was_called_off_is_not_woken() -> None:
    hint = asyncio.Event()
    waiting = asyncio.ensure_future(timers.wait_for_hint(hint, 0.05))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await timers.pause(0.05)
    assert not hint.is_set()


async def test_a_hint_is_not_waited_with() -> None:
    hint = asyncio.Event()
    asyncio.get_running_loop().call_soon(hint.set)
    async with asyncio.timeout(LONG_S / 2):
        await timers.wait_for_hint(hint, LONG_S)
    assert hint.is_set()


async def test_without_a_hint_the_beat_comes() -> None:
    hint, loop = asyncio.Event(), asyncio.get_running_loop()
    begun = loop.time()
    await timers.wait_for_hint(hint, 0.02)
    assert not hint.is_set()
    assert loop.time() // 0.02 > begun // 0.02
