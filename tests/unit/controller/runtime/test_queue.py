"""The queue of keys: each once, none lost, none with two workers."""

from __future__ import annotations

import asyncio

import pytest

from cloud_ml.controller.runtime.queue import KeyedQueue

pytestmark = pytest.mark.anyio


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def queue(clock: Clock) -> KeyedQueue:
    return KeyedQueue(clock)


async def _nothing(queue: KeyedQueue) -> bool:
    """Whether a worker would have to wait."""
    taking = asyncio.ensure_future(queue.take())
    for _ in range(3):
        await asyncio.sleep(0)
    waiting = not taking.done()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    return waiting


async def test_keys_come_in_order_and_once(queue: KeyedQueue) -> None:
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert [await queue.take(), await queue.take()] == ["a", "b"]
    assert await _nothing(queue)


async def test_a_key_that_is_being_worked_on_comes_again_afterwards(queue: KeyedQueue) -> None:
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    queue.add("a")
    assert await _nothing(queue), "two workers would have the same key"
    queue.done("a")
    assert await queue.take() == "a"
    queue.done("a")
    assert await _nothing(queue)
    assert len(queue) == 0


async def test_of_several_delays_the_earliest_counts(queue: KeyedQueue, clock: Clock) -> None:
    for delay in (30.0, 10.0, 20.0):
        queue.add_after("a", delay)
    clock.now = 9.9
    assert await _nothing(queue)
    clock.now = 10.0
    assert await queue.take() == "a"
    queue.done("a")
    clock.now = 100.0
    assert await _nothing(queue), "the later ones are void"


async def test_a_look_now_makes_the_later_one_void(queue: KeyedQueue, clock: Clock) -> None:
    queue.add_after("a", 10.0)
    queue.add("a")
    assert await queue.take() == "a"
    queue.done("a")
    clock.now = 10.0
    assert await _nothing(queue)


async def test_a_delay_asked_for_while_working_is_kept(queue: KeyedQueue, clock: Clock) -> None:
    queue.add("a")
    assert await queue.take() == "a"
    queue.add_after("a", 5.0)
    queue.done("a")
    assert await _nothing(queue)
    clock.now = 5.0
    assert await queue.take() == "a"


async def test_a_key_that_becomes_due_while_it_is_worked_on_comes_again(
    queue: KeyedQueue, clock: Clock
) -> None:
    queue.add("a")
    await queue.take()
    queue.add_after("a", 5.0)
    clock.now = 6.0
    assert await _nothing(queue)
    queue.done("a")
    assert await queue.take() == "a"


async def test_a_negative_delay_means_now(queue: KeyedQueue) -> None:
    queue.add_after("a", -3.0)
    assert await queue.take() == "a"


async def test_a_waiting_worker_is_woken(queue: KeyedQueue) -> None:
    workers = [asyncio.ensure_future(queue.take()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in ("a", "b", "c"):
        queue.add(key)
    async with asyncio.timeout(60):
        assert sorted(await asyncio.gather(*workers)) == ["a", "b", "c"]


async def test_a_waiting_worker_is_woken_by_time() -> None:
    queue = KeyedQueue()
    queue.add_after("late", 0.02)
    queue.add_after("early", 0.0)
    async with asyncio.timeout(60):
        assert [await queue.take(), await queue.take()] == ["early", "late"]


async def test_no_wake_up_is_lost_and_no_key_doubled_under_many_workers() -> None:
    queue = KeyedQueue()
    expected = {f"k{number}": 0 for number in range(50)}
    seen = dict.fromkeys(expected, 0)
    under_way: set[str] = set()

    async def work() -> None:
        while True:
            key = await queue.take()
            assert key not in under_way
            under_way.add(key)
            seen[key] = expected[key]
            await asyncio.sleep(0)
            under_way.discard(key)
            queue.done(key)

    workers = [asyncio.ensure_future(work()) for _ in range(8)]
    for turn in range(20):
        for key in expected:
            expected[key] = turn
            queue.add(key)
            if turn % 3 == 0:
                await asyncio.sleep(0)
    async with asyncio.timeout(60):
        while len(queue):
            await asyncio.sleep(0)
    assert seen == expected, "every key was looked at after its last change"
    for worker in workers:
        assert not worker.done()
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


async def test_a_worker_that_is_cancelled_in_the_moment_of_a_wake_up_ends(
    queue: KeyedQueue, clock: Clock
) -> None:
    async def work() -> None:
        while True:
            queue.done(await queue.take())

    worker = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    queue.add("a")  # wakes the worker, which has not run yet when it is cancelled
    for _ in range(2):
        await asyncio.sleep(0)
    queue.add("b")
    worker.cancel()
    done, _ = await asyncio.wait([worker], timeout=5)
    assert worker in done


async def test_a_wake_up_of_a_worker_that_is_cancelled_goes_to_another(queue: KeyedQueue) -> None:
    leaving, staying = (asyncio.ensure_future(queue.take()) for _ in range(2))
    await asyncio.sleep(0)
    queue.add("a")  # meant for the first, which is cancelled before it runs
    leaving.cancel()
    async with asyncio.timeout(60):
        assert await staying == "a"
    assert leaving.cancelled()


async def test_the_echo_of_what_a_worker_wrote_wakes_nobody_however_late_it_comes(
    queue: KeyedQueue,
) -> None:
    queue.add("a", 5)
    assert await queue.take() == "a"
    queue.add("a", 7)  # written by the worker, and read back while it still has the key
    queue.done("a", done_revision=8)
    queue.add("a", 8)
    assert await _nothing(queue)
    queue.add("a", 9)
    assert await queue.take() == "a", "somebody else wrote"


async def test_a_look_that_failed_hides_no_change(queue: KeyedQueue) -> None:
    queue.add("a", 5)
    assert await queue.take() == "a"
    queue.done("a")
    queue.add("a", 5)
    assert await queue.take() == "a"


async def test_an_echo_leaves_the_later_look_as_it_is(queue: KeyedQueue, clock: Clock) -> None:
    queue.add("a", 5)
    assert await queue.take() == "a"
    queue.add_after("a", 10.0)
    queue.done("a", done_revision=6)
    queue.add("a", 6)
    assert await _nothing(queue)
    clock.now = 10.0
    assert await queue.take() == "a"


async def test_what_was_seen_of_old_keys_is_forgotten(queue: KeyedQueue) -> None:
    for number in range(5000):
        queue.add(str(number), 1)
        queue.done(await queue.take(), done_revision=1)
    queue.add("4999", 1)
    assert await _nothing(queue)
    queue.add("0", 1)
    assert await queue.take() == "0", "a look too many does no harm; a memory without an end does"
