"""The lease of the one active controller."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from cloud_ml.controller.runtime.leader import LEASE, Leader
from cloud_ml.errors import FenceLost, Unavailable
from cloud_ml.state.base import Fence
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.offload import Offload

pytestmark = pytest.mark.anyio
TTL_S = 0.3


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload(2)
    yield offload
    offload.close()


def leader(store: MemoryStateStore, offload: Offload, holder: str = "one") -> Leader:
    return Leader(store, holder, TTL_S, lambda: datetime.now(UTC), offload)


async def test_a_term_has_a_fence_that_the_next_one_overrides(
    store: MemoryStateStore, offload: Offload
) -> None:
    async with leader(store, offload).term() as (first, _):
        assert first.name == LEASE
    async with leader(store, offload, "two").term() as (second, _):
        assert second.epoch > first.epoch
        _acts(store, second)
        with pytest.raises(FenceLost):
            _acts(store, first)


async def test_the_lease_is_given_back_at_the_end_of_a_term(
    store: MemoryStateStore, offload: Offload
) -> None:
    async with leader(store, offload).term():
        pass
    now = datetime.now(UTC)
    assert store.acquire_lease(LEASE, "two", ttl_s=1, now=now) is not None


async def test_there_is_one_leader_at_a_time_and_the_next_waits(
    store: MemoryStateStore, offload: Offload
) -> None:
    order: list[str] = []
    ending = asyncio.Event()

    async def lead(holder: str) -> None:
        async with leader(store, offload, holder).term():
            order.append(f"{holder} begins")
            await ending.wait()
            order.append(f"{holder} ends")

    first = asyncio.create_task(lead("one"))
    async with asyncio.timeout(60):
        while not order:
            await asyncio.sleep(0)
    second = asyncio.create_task(lead("two"))
    # Longer than the lease lasts: it is kept alive meanwhile, or the other would have begun.
    done, _ = await asyncio.wait([second], timeout=3 * TTL_S)
    assert (done, order) == (set(), ["one begins"])
    ending.set()
    async with asyncio.timeout(60):
        await asyncio.gather(first, second)
    assert order == ["one begins", "one ends", "two begins", "two ends"]


async def test_a_leader_whose_store_does_not_answer_steps_down(
    store: MemoryStateStore, offload: Offload
) -> None:
    async with leader(store, offload).term() as (_, lost):
        store.fail_writes(Unavailable("the store is away"))
        async with asyncio.timeout(60):
            await lost.wait()
    store.fail_writes(None)


async def test_a_leader_whose_store_keeps_it_waiting_steps_down(
    store: MemoryStateStore, offload: Offload, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    try:
        async with leader(store, offload).term() as (_, lost):
            monkeypatch.setattr(store, "acquire_lease", lambda *_, **__: over.wait(60))
            async with asyncio.timeout(20):
                await lost.wait()
    finally:
        over.set()


async def test_a_short_outage_of_the_store_ends_no_term(
    store: MemoryStateStore, offload: Offload, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: queue.SimpleQueue[bool] = queue.SimpleQueue()
    acquire = store.acquire_lease

    def recording_acquire(*args: Any, **options: Any) -> Any:
        try:
            lease = acquire(*args, **options)
        except Unavailable:
            outcomes.put(False)
            raise
        outcomes.put(lease is not None)
        return lease

    monkeypatch.setattr(store, "acquire_lease", recording_acquire)
    patient = Leader(store, "one", 5 * TTL_S, lambda: datetime.now(UTC), offload)
    async with patient.term() as (fence, lost):
        assert outcomes.get()
        store.fail_writes(Unavailable("the store is away"))
        assert await asyncio.to_thread(outcomes.get, timeout=10) is False
        store.fail_writes(None)
        assert [await asyncio.to_thread(outcomes.get, timeout=10) for _ in range(2)] == [True, True]
        assert not lost.is_set()
        _acts(store, fence)


async def test_a_refused_commit_ends_the_term(store: MemoryStateStore, offload: Offload) -> None:
    one = leader(store, offload)
    async with one.term() as (_, lost):
        one.lose()
        assert lost.is_set()
    assert store.acquire_lease(LEASE, "two", ttl_s=1, now=datetime.now(UTC)) is None, (
        "what is lost is not given back"
    )


def _acts(store: MemoryStateStore, fence: Fence) -> None:
    """A write under the fence: deleting what is not there changes nothing."""
    from cloud_ml.domain.jobs.kind import TRAIN_JOB

    store.delete(TRAIN_JOB, "nobody", fence=fence)
