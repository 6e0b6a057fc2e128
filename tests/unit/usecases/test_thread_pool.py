"""Calls on threads: each is made once and told to who waits, by at most so many threads, and
none is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from cloud_ml.usecases.thread_pool import ThreadPool

pytestmark = pytest.mark.anyio
LIMIT_S = 30.0


async def test_results_and_errors_come_back_to_who_asked() -> None:
    crew = ThreadPool(3, "test")

    def fail() -> None:
        raise KeyError("no such thing")

    assert await asyncio.gather(
        *(crew.do(lambda number=number: number**2) for number in range(200))
    ) == [number**2 for number in range(200)]
    with pytest.raises(KeyError, match="no such thing"):
        await crew.do(fail)
    crew.close()


async def test_no_more_threads_than_allowed_and_none_before_it_is_needed() -> None:
    crew, gate, seen, lock = ThreadPool(3, "few"), threading.Event(), set[str](), threading.Lock()

    def note() -> None:
        with lock:
            seen.add(threading.current_thread().name)
        gate.wait(LIMIT_S)

    first = crew.do(lambda: None)
    await first
    assert _names("few") == {"few_0"}
    calls = [crew.do(note) for _ in range(20)]
    while len(seen) < 3:
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*calls)
    assert seen == {"few_0", "few_1", "few_2"}
    crew.close()
    assert _names("few") == set()


async def test_who_is_cancelled_stops_waiting_and_the_call_runs_to_its_end() -> None:
    crew, gate, done = ThreadPool(1, "test"), threading.Event(), threading.Event()

    def work() -> None:
        gate.wait(LIMIT_S)
        done.set()

    future = crew.do(work)
    future.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await future
    behind = crew.do(done.is_set)
    gate.set()
    assert await behind
    crew.close()


async def test_closing_waits_for_what_was_asked_and_takes_no_more() -> None:
    crew, gate, made = ThreadPool(2, "test"), threading.Event(), list[int]()
    calls = [
        crew.do(lambda number=number: (gate.wait(LIMIT_S), made.append(number)))
        for number in range(6)
    ]
    gate.set()
    await asyncio.get_running_loop().run_in_executor(None, crew.close)
    assert sorted(made) == [*range(6)]
    await asyncio.gather(*calls)
    with pytest.raises(RuntimeError):
        crew.do(lambda: None)


async def test_calls_that_do_not_end_take_no_thread_from_others() -> None:
    crew, gate, begun = (
        ThreadPool(2, "stuck", stuck_s=0.05),
        threading.Event(),
        threading.Semaphore(0),
    )

    def hang() -> None:
        begun.release()
        gate.wait(LIMIT_S)

    stuck = [crew.do(hang) for _ in range(4)]
    async with asyncio.timeout(LIMIT_S):
        while (
            True
        ):  # each call that comes later finds that threads are stuck, and that there may be others
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    assert await crew.do(lambda: 7) == 7
                    break
    assert 2 < len(_names("stuck")) <= 10, "there is a bound"
    gate.set()
    await asyncio.gather(*stuck)
    for _ in range(20):
        await crew.do(lambda: None)
    crew.close()
    assert _names("stuck") == set()


def test_a_loop_that_is_over_harms_no_thread() -> None:
    crew, gate, ended = ThreadPool(1, "test"), threading.Event(), list[str]()

    async def leave() -> None:
        crew.do(lambda: (gate.wait(LIMIT_S), ended.append("first")))

    asyncio.run(leave())
    gate.set()

    async def come_back() -> str:
        return await crew.do(lambda: "second")

    assert asyncio.run(come_back()) == "second"
    assert ended == ["first"]
    crew.close()


def _names(start: str) -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(start)}


async def test_calls_that_no_thread_has_begun_are_dropped_on_request() -> None:
    crew, begun, gate = ThreadPool(1, "test"), threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return gate.wait(LIMIT_S)

    first, second = crew.do(work), crew.do(lambda: True)
    await asyncio.to_thread(begun.wait, LIMIT_S)
    closing = asyncio.create_task(asyncio.to_thread(crew.close, drop_waiting=True))
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    await closing
    assert await first
