"""Workers on a queue: each key by one worker at a time, and again later where a pass fails."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from datetime import datetime

from cloud_ml.controller.runtime.failed_passes import FailedPasses
from cloud_ml.controller.runtime.passes import PassAbandoned, PassWatchdog, StepTimeout
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import Reconciler, ReconcileResult
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
        self._passes = PassWatchdog(limit_s)
        self._reconciler = reconciler
        self._failed = failed
        self._clock = clock
        self._lost = lost
        self._observe = observe
        self._stuck = 0
        """Workers that are still at a pass that took too long."""
        self._substitutes: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[None]] = set()
        """Those of the substitutes that wait for a record."""

    async def work(self) -> None:
        """Reconcile key after key; one that fails or hangs waits longer each time, the others do
        not wait for it.
        """
        try:
            while await self._look(await self.queue.take()):
                pass
        finally:
            for substitute in self._substitutes:
                substitute.cancel()
            self._failed.close()

    async def _look(self, uid: str) -> bool:
        """Make a pass for a record. Returns whether this controller still leads."""
        began = time.perf_counter()
        current = self._passes.begin(uid, functools.partial(self._give_up, uid, began))
        result, error = ReconcileResult(), None
        try:
            result = await self._reconciler.reconcile(uid)
        except (Exception, PassAbandoned) as caught:
            error = caught
        finally:
            late = self._passes.end(current)
        if late:  # nobody looks at what has become of it
            self._come_back(uid)
            return True
        return self._note_end(uid, began, result, error)

    def _note_end(
        self, uid: str, began: float, result: ReconcileResult, error: BaseException | None
    ) -> bool:
        if isinstance(error, FenceLost):
            self._lost()
        elif isinstance(error, StepTimeout):
            self._reconciler.step_aside(uid)
            self.queue.add_after(uid, self._failed.note(uid, error))
        elif isinstance(error, Exception):
            self.queue.add_after(uid, self._failed.note(uid, error))
        elif result.revision:
            self._failed.clear(uid)
        else:
            self._failed.forget(uid)
        if result.again is not None:
            self.queue.add_after(uid, (result.again - self._clock()).total_seconds())
        self._observe(time.perf_counter() - began, "ok" if error is None else "error")
        self.queue.done(uid, result.revision)
        return not isinstance(error, FenceLost)

    # ---- passes that take too long

    def _give_up(self, uid: str, began: float, error: StepTimeout) -> None:
        """Have another worker go on while one is at a pass that takes too long."""
        self._stuck += 1
        substitute = asyncio.create_task(self._substitute())
        self._substitutes.add(substitute)
        substitute.add_done_callback(self._substitutes.discard)
        self._note_end(uid, began, ReconcileResult(), error)

    async def _substitute(self) -> None:
        own = asyncio.current_task()
        assert own is not None
        leads = True
        while leads and len(self._substitutes) <= self._stuck:
            self._idle.add(own)
            try:
                uid = await self.queue.take()
            finally:
                self._idle.discard(own)
            leads = await self._look(uid)

    def _come_back(self, uid: str) -> None:
        """A worker has ended a pass that took too long: the record wants a look, and one of the
        substitutes is too many.
        """
        self._stuck -= 1
        self.queue.add(uid)
        if self._idle:
            self._idle.pop().cancel()
