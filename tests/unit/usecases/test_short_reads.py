"""Short reads need no thread, as long as nothing keeps them waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from cloud_ml.errors import NotFound, Unavailable
from cloud_ml.state.base import StateStore
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.offload import Offload
from cloud_ml.usecases.short_reads import ShortReads

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


class Remote(MemoryStateStore):
    def read_here(self) -> bool:
        return False


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload(1)
    yield offload
    offload.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reads(offload: Offload, clock: Clock) -> Callable[..., ShortReads]:
    def make(store: StateStore | None = None, slow_ms: float = 20.0) -> ShortReads:
        return ShortReads(store or MemoryStateStore(), offload, slow_ms=slow_ms, now=clock)

    return make


async def here(read: ShortReads) -> bool:
    return await read(threading.get_ident) == threading.get_ident()


async def test_a_read_is_made_in_the_loop(reads: Callable[..., ShortReads]) -> None:
    read = reads()
    assert await here(read)
    with pytest.raises(NotFound):
        await read(_fail, NotFound("no such job"))
    assert await here(read)


async def test_reads_that_may_wait_are_made_on_threads(reads: Callable[..., ShortReads]) -> None:
    assert not await here(reads(Remote()))
    assert not await here(reads(slow_ms=0))


async def test_after_a_slow_one_reads_use_threads_for_a_second(
    reads: Callable[..., ShortReads], clock: Clock
) -> None:
    read = reads()

    def slow() -> str:
        clock.time += 0.021
        return "found"

    assert await read(slow) == "found"
    assert not await here(read)
    clock.time += 1.1
    assert await here(read)


async def test_a_read_that_would_have_to_wait_is_made_again_on_a_thread(
    reads: Callable[..., ShortReads],
) -> None:
    read, loop = reads(), threading.get_ident()

    def busy() -> str:
        if threading.get_ident() == loop:
            raise Unavailable("locked")
        return "found"

    assert await read(busy) == "found"
    assert not await here(read)
    with pytest.raises(Unavailable):
        await read(_fail, Unavailable("gone"))


def _fail(error: Exception) -> None:
    raise error
