"""Copies of trainers that are under way: large ones take longer than a pass may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from cloud_ml.controller.runtime.passes import StepTimeout
from cloud_ml.engines.gang import TrainerSource

_FIRST_WAIT_S = 0.2
"""Most trainers are small: their copy ends in the pass that began it."""
_SLOW_S = 30.0


@dataclass
class _Copy:
    task: asyncio.Task[TrainerSource]
    began: float
    slow_reported: bool = False


class Copies:
    """One copy for each job at a time. Belongs to one event loop.

    Args:
        slow_s: How long a copy may take before an event of its job says so.
    """

    def __init__(self, *, slow_s: float = _SLOW_S) -> None:
        self._slow_s = slow_s
        self._running: dict[str, _Copy] = {}

    async def get(
        self, uid: str, start: Callable[[], Coroutine[Any, Any, TrainerSource]]
    ) -> TrainerSource | None:
        """The trainer of the job ``uid``; ``None`` while it is copied.

        Raises:
            StepTimeout: The copy takes long. It goes on; this is raised once.
            Exception: What the copy raises. The next call begins another one.
        """
        now = asyncio.get_running_loop().time()
        if (copy := self._running.get(uid)) is None:
            copy = self._running[uid] = _Copy(asyncio.create_task(start()), now)
            await asyncio.wait({copy.task}, timeout=_FIRST_WAIT_S)
        if copy.task.done():
            self._running.pop(uid, None)
            return copy.task.result()
        if now - copy.began > self._slow_s and not copy.slow_reported:
            copy.slow_reported = True
            raise StepTimeout(
                f"the trainer is being copied for more than {self._slow_s:g} s; the attempt "
                "waits for it"
            )
        return None

    def forget(self, uid: str) -> None:
        """Nobody waits for it any more. A copy that has begun runs to its end on its thread."""
        if (copy := self._running.pop(uid, None)) is not None:
            copy.task.add_done_callback(_read_result)
            copy.task.cancel()


def _read_result(task: asyncio.Task[TrainerSource]) -> None:
    if not task.cancelled():
        task.exception()
