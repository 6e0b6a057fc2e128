"""One model runs one batch at a time, whichever signature, and leaves the event loop to others."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import BatchContext, Outcome, Policy, Request
from cloud_ml.serving.errors import ServingError
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.signatures import Signature, TensorSpec
from cloud_ml.serving.worker_threads import WorkerThreads


def signature(name: str, size: int = -1) -> Signature:
    return Signature(
        name, (TensorSpec("x", dtypes.FLOAT, (size,)),), (TensorSpec("y", dtypes.FLOAT, (size,)),)
    )


class KeepsState:
    """Keeps its input in ``self`` while it computes, as Python models do; some signatures take
    longer.
    """

    def __init__(self, *signatures: Signature, slow: float = 0.002) -> None:
        self.signatures = {each.name: each for each in signatures}
        self.overlaps = 0
        self.order: list[str] = []
        self._slow = slow
        self._inside = threading.Lock()

    def predict(self, signature: Signature, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        if not self._inside.acquire(blocking=False):
            self.overlaps += 1
            return [inputs[0] * 0]
        try:
            self.order.append(signature.name)
            self.input = inputs[0]
            if signature.name == "slow":
                time.sleep(self._slow)
            return [self.input * 2]
        finally:
            self._inside.release()

    def close(self) -> None: ...


class Caller:
    """Waits for the answer to its rows."""

    protocol = "test"

    def __init__(self, values: Sequence[float]) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.values = np.asarray(values, np.float32)
        self.request = Request(self, self, [self.values], len(values), 0.0)

    def waits(self) -> bool:
        return True

    def fail(self, error: ServingError) -> None:
        self.answer.set_exception(error)

    def send(self, call: Any, outcome: Outcome, first: int, rows: int) -> None:
        call.answer.set_result(outcome.arrays[0][first : first + rows])


@contextmanager
def loaded(model: KeepsState, **policy: Any) -> Iterator[LoadedVersion]:
    loop = asyncio.get_running_loop()
    with WorkerThreads(2) as aside:
        yield LoadedVersion(
            "m", 1, model, BatchContext(loop, LoopIteration(loop), aside, Policy(**policy))
        )


def test_signatures_of_a_model_never_run_at_the_same_time() -> None:
    """A quick one runs on the event loop, a slow one in a thread: before, both ran at once."""

    async def run() -> None:
        model = KeepsState(signature("quick"), signature("slow"), signature("whole", 3))
        chance = random.Random(1)
        with loaded(model, inline_s=0.001) as version:

            async def caller(number: int) -> None:
                for turn in range(40):
                    name = chance.choice(["quick", "slow", "whole"])
                    rows = 3 if name == "whole" else chance.randint(1, 4)
                    call = Caller([number + turn / 64 + row / 1024 for row in range(rows)])
                    version.batcher(model.signatures[name]).submit(
                        call.request, ((3,) if name == "whole" else (),)
                    )
                    answer = await asyncio.wait_for(call.answer, 60)
                    assert answer.tolist() == (call.values * 2).tolist()
                    await asyncio.sleep(chance.choice([0, 0, 0.001]))

            await asyncio.gather(*(caller(number) for number in range(12)))
            assert version.idle
        assert model.overlaps == 0

    asyncio.run(run())


def test_signatures_take_turns_and_none_starves() -> None:
    async def run() -> None:
        model = KeepsState(signature("slow", 1), signature("quick", 1))
        with loaded(model, inline_s=0.0) as version:
            many = [Caller([0]) for _ in range(20)]
            for call in many:
                version.batcher(model.signatures["slow"]).submit(call.request, ((1,),))
            other = Caller([1])
            version.batcher(model.signatures["quick"]).submit(other.request, ((1,),))
            await asyncio.gather(other.answer, *(each.answer for each in many))
        assert "quick" in model.order[:3]

    asyncio.run(run())


def test_many_quick_runs_leave_the_event_loop_to_others_in_between() -> None:
    async def run() -> None:
        model = KeepsState(signature("slow", 1), slow=0.001)
        with loaded(model, inline_s=9.0) as version:
            batcher = version.batcher(model.signatures["slow"])
            first = Caller([0])
            batcher.submit(first.request, ((1,),))
            await first.answer  # so that it is known how long a run takes
            many = [Caller([0]) for _ in range(50)]
            for call in many:
                batcher.submit(call.request, ((1,),))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            answered = sum(each.answer.done() for each in many)
            await asyncio.gather(*(each.answer for each in many))
        assert 0 < answered < 20

    asyncio.run(run())
