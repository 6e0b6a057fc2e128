"""Workers on a queue: each key by one worker at a time, and again later where a pass fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from cloud_ml.controller.runtime.failed_passes import FailedPasses
from cloud_ml.controller.runtime.passes import PassRunner, StepTimeout
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import Reconciler
from cloud_ml.errors import FenceLost


class WorkerPool:
    """Reconciles the keys of a queue.

    Args:
        queue: The keys that want a pass.
        reconciler: Makes the passes.
        failed: Told of passes that failed; says how long to wait for the next one.
        clock: The time, for later passes.
        lost: Called when another controller has taken over.
        observe: Told the seconds of each pass, and how it ended.
        limit_s: The longest that a pass may take; 0 for no limit.
    """

    def __init__(
        self,
        queue: KeyedQueue,
        reconciler: Reconciler,
        *,
        failed: FailedPasses,
        clock: Callable[[], datetime],
        lost: Callable[[], None],
        observe: Callable[[float, str], None],
        limit_s: float = 0.0,
    ) -> None:
        self.queue = queue
        self._passes = PassRunner(limit_s, queue.add)
        self._reconciler = reconciler
        self._failed = failed
        self._clock = clock
        self._lost = lost
        self._observe = observe

    async def work(self) -> None:
        """Reconcile key after key; one that fails or hangs waits longer each time, the others do
        not wait for it.
        """
        try:
            await self._work()
        finally:
            self._passes.close()
            self._failed.close()

    async def _work(self) -> None:
        queue = self.queue
        while True:
            uid, seen = await queue.take(), 0
            began, outcome = time.perf_counter(), "error"
            try:
                result = await self._passes.run(uid, self._reconciler.reconcile(uid))
            except FenceLost:
                self._lost()
                return
            except StepTimeout as error:
                self._reconciler.step_aside(uid)
                queue.add_after(uid, self._failed.note(uid, error))
            except Exception as error:
                queue.add_after(uid, self._failed.note(uid, error))
            else:
                outcome = "ok"
                seen = result.revision
                if seen:
                    self._failed.clear(uid)
                else:
                    self._failed.forget(uid)
                if result.again is not None:
                    queue.add_after(uid, (result.again - self._clock()).total_seconds())
            finally:
                self._observe(time.perf_counter() - began, outcome)
                queue.done(uid, seen)
