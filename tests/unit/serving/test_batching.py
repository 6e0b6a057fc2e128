"""Batches: who runs together, who is left out, who is told what."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import BatchContext, Batcher, Outcome, Policy, Request
from cloud_ml.serving.errors import BadRequest, ModelFailed, Overloaded, ServingError, TooLate
from cloud_ml.serving.signatures import Signature, TensorSpec
from cloud_ml.serving.worker_threads import WorkerThreads

ROWS = Signature(
    "s", (TensorSpec("x", dtypes.FLOAT, (-1,)),), (TensorSpec("y", dtypes.FLOAT, (-1,)),)
)
WHOLE = Signature(
    "s", (TensorSpec("x", dtypes.FLOAT, (2,)),), (TensorSpec("y", dtypes.FLOAT, (2,)),)
)


class Doubler:
    """Gives twice what it gets; remembers the sizes; a row of 13 is bad luck."""

    def __init__(self, spoil: Callable[[np.ndarray], Any] = lambda made: [made]) -> None:
        self.signatures = {"s": ROWS}
        self.seen: list[int] = []
        self._spoil = spoil

    def predict(self, signature: Signature, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        self.seen.append(len(inputs[0]))
        if 13 in inputs[0]:
            raise ValueError("bad luck")
        return self._spoil(inputs[0] * 2)

    def close(self) -> None: ...


class Caller:
    """Waits, and keeps what it is told. Is its own form."""

    def __init__(
        self, values: Sequence[float], *, gone: bool = False, deadline: float = 0.0
    ) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.gone = gone
        array = np.asarray(values, np.float32)
        self.request = Request(self, self, [array], len(array), deadline)

    def waits(self) -> bool:
        return not self.gone

    protocol = "test"

    def fail(self, error: ServingError) -> None:
        self.answer.set_result(error)

    def send(self, call: Any, outcome: Outcome, first: int, rows: int) -> None:
        call.answer.set_result(outcome.arrays[0][first : first + rows].tolist())


def trial(steps: Callable[[Callable[..., Batcher]], Awaitable[None]]) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        with WorkerThreads(1) as aside:

            def batcher(model: Doubler, signature: Signature = ROWS, **policy: Any) -> Batcher:
                workshop = BatchContext(loop, LoopIteration(loop), aside, Policy(**policy))
                return Batcher(model, signature, workshop, workshop.queue())

            await steps(batcher)

    asyncio.run(run())


async def answers(
    batcher: Batcher, callers: Sequence[Caller], tails: tuple[tuple[int, ...], ...] = ((),)
) -> list[Any]:
    for caller in callers:
        batcher.submit(caller.request, tails)
    return [await asyncio.wait_for(caller.answer, 60) for caller in callers]


@pytest.mark.parametrize("inline_s", [0.0, 9.0])
def test_what_arrives_in_one_turn_runs_together_and_everyone_gets_their_rows(
    inline_s: float,
) -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        model = Doubler()
        batcher = make(model, inline_s=inline_s)
        assert await answers(batcher, [Caller([1, 2]), Caller([]), Caller([3])]) == [
            [2, 4],
            [],
            [6],
        ]
        assert model.seen == [3]
        assert batcher.idle

    trial(steps)


def test_a_batch_is_not_larger_than_allowed_but_a_request_may_be() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        model = Doubler()
        callers = [Caller([1] * size) for size in (2, 2, 2, 7)]
        await answers(make(model, max_batch_rows=4), callers)
        assert model.seen == [4, 2, 7]

    trial(steps)


def test_batches_are_filled_up_to_sizes_that_a_model_is_compiled_for() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        model = Doubler()
        batcher = make(model, allowed_rows=(4, 8))
        assert await answers(batcher, [Caller([1, 2]), Caller([3])]) == [[2, 4], [6]]
        assert model.seen == [4]

    trial(steps)


def test_different_shapes_and_signatures_without_rows_are_never_mixed() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        model = Doubler()
        batcher = make(model)
        first, second = Caller([1, 2]), Caller([3])
        batcher.submit(first.request, ((),))
        assert await answers(batcher, [second], ((5,),)) == [[6]]
        assert await first.answer == [2, 4]
        whole = make(model, WHOLE)
        assert await answers(whole, [Caller([1, 2]), Caller([3, 4])], ((2,),)) == [[2, 4], [6, 8]]
        assert model.seen == [2, 1, 2, 2]

    trial(steps)


def test_who_gave_up_or_is_late_is_left_out() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        model = Doubler()
        gone, late, there = Caller([1], gone=True), Caller([2], deadline=1e-9), Caller([3])
        batcher = make(model)
        batcher.submit(gone.request, ((),))
        refusal, answer = await answers(batcher, [late, there])
        assert isinstance(refusal, TooLate)
        assert answer == [6]
        assert model.seen == [1]
        assert not gone.answer.done()

    trial(steps)


def test_a_batch_that_fails_is_run_again_one_by_one() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        good, bad, fine = await answers(make(Doubler()), [Caller([1]), Caller([13]), Caller([3])])
        assert (good, fine) == ([2], [6])
        assert isinstance(bad, ModelFailed)
        assert "ValueError: bad luck" in bad.message

    trial(steps)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda made: [made[:-1]],
        lambda made: [],
        lambda made: [None],
        lambda made: [np.float32(1)],
        lambda made: 7,
    ],
)
def test_an_answer_that_cannot_be_split_is_an_error_and_the_next_request_is_served(
    spoil: Any,
) -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        model = Doubler(spoil)
        batcher = make(model)
        (error,) = await answers(batcher, [Caller([1])])
        assert isinstance(error, ModelFailed)
        model._spoil = lambda made: [made]
        assert await answers(batcher, [Caller([1])]) == [[2]]

    trial(steps)


@pytest.mark.parametrize("inline_s", [0.0, 9.0])
def test_a_model_that_wants_to_end_the_program_has_failed_and_nothing_ends(inline_s: float) -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        def leave(made: np.ndarray) -> Any:
            if 13 in made:
                raise SystemExit(3)
            return [made]

        batcher = make(Doubler(leave), inline_s=inline_s)
        for _ in range(3):
            (error,) = await answers(batcher, [Caller([6.5])])
            assert isinstance(error, ModelFailed)
            assert "SystemExit: 3" in error.message
            assert await answers(batcher, [Caller([1])]) == [[2]]

    trial(steps)


def test_what_a_model_calls_a_bad_request_is_told_as_one() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        def refuse(made: np.ndarray) -> Any:
            raise BadRequest("not these")

        (error,) = await answers(make(Doubler(refuse)), [Caller([1])])
        assert isinstance(error, BadRequest)

    trial(steps)


def test_too_many_are_told_at_once() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        batcher = make(Doubler(), max_queue=2)
        callers = [Caller([1]), Caller([2])]
        for caller in callers:
            batcher.submit(caller.request, ((),))
        with pytest.raises(Overloaded):
            batcher.submit(Caller([3]).request, ((),))
        assert [await caller.answer for caller in callers] == [[2], [4]]
        assert await answers(batcher, [Caller([3])]) == [[6]]

    trial(steps)


def test_rows_that_gain_nothing_together_run_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        now = 0.0

        def look(made: np.ndarray) -> Any:
            nonlocal now
            now += 0.0025 * len(made)
            return [made]

        monkeypatch.setattr(
            "cloud_ml.serving.batching.time", SimpleNamespace(perf_counter=lambda: now)
        )
        model = Doubler(look)
        batcher = make(model, inline_s=0.001)
        for _ in range(20):
            assert await answers(batcher, [Caller([row]) for row in range(8)]) == [
                [2 * row] for row in range(8)
            ]
        assert model.seen[0] == 8
        assert model.seen[-8:] == [1] * 8

    trial(steps)


def test_one_run_that_had_to_wait_does_not_send_a_quick_model_to_a_thread() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        ran: list[bool] = []
        own = threading.get_ident()

        def look(made: np.ndarray) -> Any:
            ran.append(threading.get_ident() == own)
            time.sleep(0.05 if len(ran) == 5 else 0.0)  # as if another had the core
            return [made]

        batcher = make(Doubler(look), inline_s=0.02)
        for _ in range(9):
            await answers(batcher, [Caller([1])])
        assert ran == [False] + [True] * 8  # the first may compile
        await answers(batcher, [Caller([1] * 100)])
        assert not ran[-1]  # nobody knows how long so many rows take

    trial(steps)


class Held(Doubler):
    """Begins a run, and ends it when it may."""

    def __init__(
        self, begun: SimpleQueue[float] | None = None, go: threading.Semaphore | None = None
    ) -> None:
        super().__init__()
        self.begun = begun or SimpleQueue()
        self.go = go or threading.Semaphore(0)

    def predict(self, signature: Signature, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        self.begun.put(float(inputs[0][0]))
        assert self.go.acquire(timeout=60)
        return super().predict(signature, inputs)


async def begins(model: Held) -> float:
    return await asyncio.to_thread(model.begun.get, timeout=10)


async def has_run_once(batcher: Batcher, model: Held) -> None:
    """So that it is known how long that takes."""
    model.go.release()
    await answers(batcher, [Caller([0, 0])], ((2,),))
    assert await begins(model) == 0


def test_the_thread_goes_on_by_itself_with_what_nothing_more_fits_in() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        model = Held()
        batcher = make(model, WHOLE, inline_s=0.0)
        await has_run_once(batcher, model)
        callers = [Caller([row, row]) for row in (1, 2, 3)]
        for caller in callers:
            batcher.submit(caller.request, ((2,),))
        assert await begins(model) == 1
        model.go.release()
        assert (
            model.begun.get(timeout=60) == 2
        )  # though the loop, in which this is called, stands still
        assert not callers[0].answer.done()
        model.go.release(2)
        assert [await caller.answer for caller in callers] == [[2, 2], [4, 4], [6, 6]]
        assert batcher.idle

    trial(steps)


def test_a_model_that_is_asked_often_leaves_the_thread_to_others_in_their_turn() -> None:
    async def steps(make: Callable[..., Batcher]) -> None:
        often = Held()
        seldom = Held(often.begun, often.go)
        busy, other = make(often, WHOLE, inline_s=0.0), make(seldom, WHOLE, inline_s=0.0)
        await has_run_once(busy, often)
        callers = [Caller([row, row]) for row in (1, 2, 3)]
        for caller in callers:
            busy.submit(caller.request, ((2,),))
        assert await begins(often) == 1
        last = Caller([9, 9])
        other.submit(last.request, ((2,),))
        await asyncio.sleep(0)
        often.go.release(4)
        assert [await caller.answer for caller in (*callers, last)] == [
            [2, 2],
            [4, 4],
            [6, 6],
            [18, 18],
        ]
        assert [often.begun.get(timeout=60) for _ in range(3)] == [9, 2, 3]
        assert busy.idle
        assert other.idle

    trial(steps)


def test_what_may_still_grow_or_takes_long_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then who gives up is left out of it."""

    async def steps(make: Callable[..., Batcher]) -> None:
        for signature, tails in ((ROWS, ((),)), (WHOLE, ((2,),))):
            model = Held()
            batcher = make(model, signature, inline_s=0.0)
            if signature is WHOLE:
                monkeypatch.setattr("cloud_ml.serving.model_queue.AHEAD_S", 0.0)
                await has_run_once(batcher, model)
            first, gone = Caller([1, 1]), Caller([2, 2])
            batcher.submit(first.request, tails)
            assert await begins(model) == 1
            batcher.submit(gone.request, tails)
            await asyncio.sleep(0)
            gone.gone = True
            model.go.release()
            assert await first.answer == [2, 2]
            model.go.release()
            assert await answers(batcher, [Caller([3, 3])], tails) == [[6, 6]]
            assert await begins(model) == 3
            assert not gone.answer.done()

    trial(steps)
