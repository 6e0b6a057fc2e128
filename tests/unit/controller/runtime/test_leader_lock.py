"""Several servers of one machine under one name: a dead leader is followed at once, one that hangs
when its lease is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloud_ml.controller.runtime.leader import LEASE, Leader
from cloud_ml.controller.runtime.leader_lock import LeaderLock
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.offload import Offload

pytestmark = pytest.mark.anyio
LONG_S, SHORT_S = 3600.0, 0.3


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload(2)
    yield offload
    offload.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leader.lock"


def now() -> datetime:
    return datetime.now(UTC)


def common_name(path: Path) -> str:
    path.touch()
    return f"both/{path.stat().st_ino}"


async def test_the_lease_of_a_dead_leader_is_taken_at_once(
    store: MemoryStateStore, offload: Offload, path: Path
) -> None:
    store.acquire_lease(LEASE, common_name(path), ttl_s=LONG_S, now=now())
    async with asyncio.timeout(60):
        async with Leader(store, "both", LONG_S, now, offload, lock=LeaderLock(path)).term():
            found = store.find_lease(LEASE)
            assert found is not None
            assert found.holder == common_name(path)
            assert not LeaderLock(path).take()
    assert LeaderLock(path).take(), "it is given back"


async def test_the_next_one_waits_for_a_leader_that_lives_and_follows_when_it_dies(
    store: MemoryStateStore, offload: Offload, path: Path
) -> None:
    living = LeaderLock(path)
    assert living.take()
    store.acquire_lease(LEASE, common_name(path), ttl_s=LONG_S, now=now())
    leads = asyncio.Event()

    async def lead() -> None:
        async with Leader(store, "both", LONG_S, now, offload, lock=LeaderLock(path)).term():
            leads.set()

    following = asyncio.create_task(lead())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.7):
            await leads.wait()
    living.release()  # as the kernel does when its process ends
    async with asyncio.timeout(60):
        await leads.wait()
        await following


async def test_a_lock_whose_file_was_removed_says_nothing_about_the_leader(
    store: MemoryStateStore, offload: Offload, path: Path
) -> None:
    async with Leader(store, "both", LONG_S, now, offload, lock=LeaderLock(path)).term():
        path.unlink()
        other = Leader(store, "both", LONG_S, now, offload, lock=LeaderLock(path))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7), other.term():
                pass
    async with asyncio.timeout(60), other.term():
        assert path.exists()


def test_a_lock_whose_file_cannot_be_opened_is_not_taken(path: Path) -> None:
    assert not LeaderLock(path / "absent").take()


async def test_a_leader_that_hangs_is_followed_when_its_lease_is_over(
    store: MemoryStateStore, offload: Offload, path: Path
) -> None:
    hangs = LeaderLock(path)
    assert hangs.take()
    before = store.acquire_lease(LEASE, common_name(path), ttl_s=SHORT_S, now=now())
    assert before is not None
    async with asyncio.timeout(60):
        async with Leader(store, "both", SHORT_S, now, offload, lock=LeaderLock(path)).term() as (
            fence,
            _,
        ):
            assert fence.epoch > before.epoch
            again = Leader(store, "both", SHORT_S, now, offload, lock=hangs)
            entering = asyncio.create_task(again.term().__aenter__())
            with pytest.raises(TimeoutError):  # it wakes up, and goes by the common name
                async with asyncio.timeout(3 * SHORT_S):
                    await asyncio.shield(entering)
            entering.cancel()


async def test_whoever_follows_a_leader_that_hung_takes_the_lock_when_it_is_free(
    store: MemoryStateStore, offload: Offload, path: Path
) -> None:
    hangs, other = LeaderLock(path), LeaderLock(path)
    assert hangs.take()
    async with (
        asyncio.timeout(60),
        Leader(store, "both", SHORT_S, now, offload, lock=LeaderLock(path)).term(),
    ):
        hangs.release()
        while other.take():
            other.release()
            await asyncio.sleep(SHORT_S / 10)
    assert other.take()
