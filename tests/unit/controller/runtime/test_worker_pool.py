"""Workers while one is at a pass that takes too long."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from cloud_ml.controller.runtime.failed_passes import FailedPasses
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import ReconcileResult
from cloud_ml.controller.runtime.worker_pool import WorkerPool
from cloud_ml.settings import ControllerSettings
from cloud_ml.state.memory import MemoryStateStore
from cloud_ml.usecases.offload import Offload

pytestmark = pytest.mark.anyio


class Hanging:
    """A reconciler whose passes for ``stuck`` hang until they may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.seen: asyncio.Queue[str] = asyncio.Queue()
        self.at_once, self.most_at_once = 0, 0

    async def reconcile(self, uid: str) -> ReconcileResult:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.seen.put_nowait(uid)
        if uid.startswith("stuck"):
            await self.may_end.wait()
        await asyncio.sleep(0)
        self.at_once -= 1
        return ReconcileResult(1)

    def step_aside(self, uid: str) -> None:
        """Nobody waits."""


async def test_each_worker_that_is_stuck_has_a_substitute_until_it_comes_back() -> None:
    queue, hanging, offload = KeyedQueue(), Hanging(), Offload(1)
    failed = FailedPasses(
        MemoryStateStore(),
        ControllerSettings(backoff_first_s=600.0, backoff_longest_s=600.0),
        lambda: datetime.now(UTC),
        offload,
    )
    pool = WorkerPool(
        queue, hanging, failed=failed, clock=lambda: datetime.now(UTC), lost=lambda: None,
        observe=lambda seconds, outcome: None, limit_s=0.05,
    )  # fmt: skip
    worker = asyncio.create_task(pool.work())
    try:
        async with asyncio.timeout(60):
            for uid in ("stuck-1", "stuck-2"):
                queue.add(uid)
                assert await hanging.seen.get() == uid
            queue.add("healthy")
            assert await hanging.seen.get() == "healthy"
            hanging.may_end.set()
            again = {await hanging.seen.get(), await hanging.seen.get()}
            assert again == {"stuck-1", "stuck-2"}, "a record wants a look when its pass has ended"
            while pool._substitutes:
                await asyncio.sleep(0.01)
            hanging.most_at_once = 0
            for number in range(9):
                queue.add(f"later-{number}")
            for number in range(9):
                assert await hanging.seen.get() == f"later-{number}"
            assert hanging.most_at_once == 1, "there is one worker again"
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        offload.close()
