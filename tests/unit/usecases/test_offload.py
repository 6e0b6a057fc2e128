"""One tenant's long calls make nobody else wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cloud_ml.usecases.offload import Offload

pytestmark = pytest.mark.anyio


async def test_a_tenant_has_its_share_of_the_threads_for_long_calls() -> None:
    offload, go, begun = (
        Offload(1, long_threads=4, share=2),
        threading.Event(),
        threading.Semaphore(0),
    )

    def long() -> None:
        begun.release()
        go.wait()

    calls = [asyncio.ensure_future(offload.long("greedy", long)) for _ in range(20)]
    try:
        for _ in range(2):
            await offload(begun.acquire)
        assert await asyncio.wait_for(offload.long("other", lambda: "here"), 60) == "here"
        assert await asyncio.wait_for(offload(lambda: "here, too"), 60) == "here, too"
        calls[0].cancel()  # its thread works on, so its place is not free
        assert await asyncio.wait_for(offload.long("other", lambda: "still"), 60) == "still"
        assert not begun.acquire(blocking=False)
    finally:
        go.set()
        await asyncio.gather(*calls, return_exceptions=True)
        offload.close()
    assert offload.stopping()


async def test_a_call_that_fails_gives_its_turn_back() -> None:
    offload = Offload(1, long_threads=1, share=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await offload.long("somebody", lambda: 1 // 0)
    offload.close()


async def test_many_who_move_bytes_leave_threads_to_others() -> None:
    offload, go, begun = Offload(3, moving=2), threading.Event(), threading.Semaphore(0)

    def piece() -> None:
        begun.release()
        go.wait()

    pieces = [asyncio.ensure_future(offload.moving(piece)) for _ in range(20)]
    try:
        for _ in range(2):
            await offload(begun.acquire)
        assert await asyncio.wait_for(offload(lambda: "here"), 60) == "here"
        assert not begun.acquire(blocking=False)
        go.set()
        await asyncio.wait_for(asyncio.gather(*pieces), 60)
        assert sum(begun.acquire(blocking=False) for _ in range(20)) == 18
    finally:
        go.set()
        await asyncio.gather(*pieces, return_exceptions=True)
        offload.close()
