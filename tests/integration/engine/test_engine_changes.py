"""What the engine tells of gangs that report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cloud_ml.domain.observed import GangState, ObservedGang
from cloud_ml.engines.local.engine import LocalEngine

pytestmark = pytest.mark.anyio
_TURNS = 20
"""LoopIteration of the event loop in which a second wake-up would come."""


async def test_a_report_is_told_once_and_no_other_gang_is_looked_at(
    shared_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at a gang reads four files, and there may be many gangs."""
    looks: list[None] = []

    def look() -> list[str]:
        looks.append(None)
        return []

    monkeypatch.setattr(shared_engine, "_with_dead_supervisors", look)
    reported_uids: set[str] = set()

    async def listen(changes: AsyncIterator[str]) -> None:
        async for uid in changes:
            reported_uids.add(uid)

    listening = asyncio.create_task(listen(shared_engine.changes()))
    try:
        uids = [f"{number:032x}" for number in range(3)]
        async with asyncio.timeout(30):
            for uid in uids:
                while uid not in reported_uids:
                    shared_engine._ledger.report(ObservedGang(uid, 1, GangState.RUNNING))
                    await asyncio.sleep(0.01)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert looks == []
