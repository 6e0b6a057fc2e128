"""Work that repeats: at once when asked for, together where it is asked for often, and complete
for who waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cloud_ml.controller.runtime.repeating import Repeating

NEVER_S = 1e6


def _run(
    scene: Callable[[Repeating, list[int]], Awaitable[None]], work: Callable[[], Awaitable[None]]
) -> list[int]:
    passes: list[int] = []

    async def counted() -> None:
        passes.append(len(passes))
        await work()

    async def main() -> None:
        repeating = Repeating(counted, NEVER_S)
        task = asyncio.create_task(repeating.run())
        try:
            async with asyncio.timeout(20):
                await scene(repeating, passes)
        finally:
            task.cancel()

    asyncio.run(main())
    return passes


async def _nothing() -> None:
    """A pass that has nothing to do."""


def test_who_waits_gets_a_pass_that_began_after_the_question() -> None:
    under_way, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        under_way.set()
        await go_on.wait()

    async def scene(repeating: Repeating, passes: list[int]) -> None:
        await under_way.wait()
        waiting = asyncio.create_task(repeating.complete_pass())
        await asyncio.sleep(0)
        go_on.set()
        await waiting
        assert len(passes) == 2, "the pass that was under way may have read what was there before"

    _run(scene, work)


def test_many_who_ask_in_one_moment_share_a_pass() -> None:
    async def scene(repeating: Repeating, passes: list[int]) -> None:
        await repeating.complete_pass()
        before = len(passes)
        await asyncio.gather(*[repeating.complete_pass() for _ in range(50)])
        assert len(passes) == before + 1

    _run(scene, _nothing)


def test_who_waits_is_not_told_of_a_pass_that_failed() -> None:
    failures = [OSError("the database is away")] * 2

    async def work() -> None:
        if failures:
            raise failures.pop()

    async def scene(repeating: Repeating, passes: list[int]) -> None:
        waiting = asyncio.create_task(repeating.complete_pass())
        while len(passes) < 2:
            await repeating.soon()
            await asyncio.sleep(0)
        assert not waiting.done()
        await repeating.soon()
        await waiting
        assert len(passes) == 3

    _run(scene, work)


@pytest.mark.parametrize("count", [1, 3])
def test_a_question_is_answered_without_waiting_for_the_period(count: int) -> None:
    async def scene(repeating: Repeating, passes: list[int]) -> None:
        for _ in range(count):
            await repeating.complete_pass()

    assert len(_run(scene, _nothing)) == count
