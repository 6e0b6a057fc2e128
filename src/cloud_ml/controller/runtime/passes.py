"""A pass of one record: the step that it is at, and what happens when a step does not end.

A call on a thread cannot be interrupted. So a pass that takes too long is abandoned: its worker
goes on with other records, and the pass ends at its next step, before that does anything. Until
then later passes of the record may take every step but the one that does not end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cloud_ml.errors import Unavailable

T = TypeVar("T")


class StepTimeout(Unavailable):
    """A step of a pass takes longer than the limit of a pass."""


class PassAbandoned(BaseException):
    """The pass took too long before, and must not take another step. No handler of failures is
    meant.
    """


@dataclass
class _Pass:
    uid: str
    limit_s: float
    step: str = "begin"
    abandoned: bool = False
    unfinished: set[str] = field(default_factory=set)
    """Steps at which earlier passes of the record still are."""


_current: ContextVar[_Pass | None] = ContextVar("pass", default=None)


def begin_step(step: str) -> None:
    """Say what the pass does next, such as ``fetch the trainer``. Nothing happens outside of a
    pass.

    Raises:
        StepTimeout: An earlier pass of the record is still at this step.
        PassAbandoned: This pass took too long before.
    """
    current = _current.get()
    if current is None:
        return
    if current.abandoned:
        raise PassAbandoned
    if step in current.unfinished:
        raise _timeout(step, current.limit_s)
    current.step = step


class PassRunner:
    """Runs passes with a limit of time. Belongs to one event loop.

    Args:
        limit_s: The longest that a pass may take; 0 for no limit.
        resume: Called with the record of an abandoned pass when that has ended: the record wants a
            look.
    """

    def __init__(self, limit_s: float, resume: Callable[[str], None]) -> None:
        self._limit_s = limit_s
        self._resume = resume
        self._abandoned: dict[str, dict[asyncio.Task[Any], _Pass]] = {}

    async def run(self, uid: str, work: Coroutine[Any, Any, T]) -> T:
        """Run a pass of a record.

        Raises:
            StepTimeout: It took too long. It goes on to the end of its step and no further.
        """
        if not self._limit_s:
            return await work
        current = _Pass(uid, self._limit_s)
        current.unfinished.update(each.step for each in self._abandoned.get(uid, {}).values())
        token = _current.set(current)
        try:
            task = asyncio.create_task(work)
        finally:
            _current.reset(token)
        try:
            await asyncio.wait({task}, timeout=self._limit_s)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        if task.done():
            return task.result()
        current.abandoned = True
        self._abandoned.setdefault(uid, {})[task] = current
        task.add_done_callback(self._end)
        raise _timeout(current.step, self._limit_s)

    def close(self) -> None:
        """End what is still under way of abandoned passes."""
        for passes in list(self._abandoned.values()):
            for task in list(passes):
                task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # nobody else looks at it
        for uid, passes in list(self._abandoned.items()):
            if passes.pop(task, None) is None:
                continue
            if not passes:
                del self._abandoned[uid]
            if not task.cancelled():
                self._resume(uid)


def _timeout(step: str, limit_s: float) -> StepTimeout:
    return StepTimeout(
        f"the step '{step}' has taken longer than {limit_s:g} s; other records do not wait for it"
    )
