"""A pass of one record: the step that it is at, and what happens when a step does not end.

A call on a thread cannot be interrupted. So a pass that takes too long is abandoned: another worker
goes on with other records, and the pass ends at its next step, before that does anything. Until
then later passes of the record may take every step but the one that does not end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field

from cloud_ml.errors import Unavailable


class StepTimeout(Unavailable):
    """A step of a pass takes longer than the limit of a pass."""


class PassAbandoned(BaseException):
    """The pass took too long before, and must not take another step. No handler of failures is
    meant.
    """


@dataclass(eq=False)
class ReconcilePass:
    """A pass that is under way."""

    uid: str
    limit_s: float
    step: str = "begin"
    abandoned: bool = False
    unfinished: set[str] = field(default_factory=set)
    """Steps at which earlier passes of the record still are."""
    ends_at: float = 0.0
    """In the time of the loop."""
    token: Token[ReconcilePass | None] | None = None


_current: ContextVar[ReconcilePass | None] = ContextVar("pass", default=None)


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


class PassWatchdog:
    """Watches over passes with a limit of time. Belongs to one event loop.

    A pass runs in its worker and not in a task of its own, which would cost more than many passes.
    All have the same limit, so the one that began first is late first, and one timer is enough.

    Args:
        limit_s: The longest that a pass may take; 0 for no limit.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._abandoned: dict[str, set[ReconcilePass]] = {}
        self._watched: dict[ReconcilePass, Callable[[StepTimeout], None]] = {}
        self._is_set = False

    def begin(self, uid: str, give_up: Callable[[StepTimeout], None]) -> ReconcilePass:
        """The caller begins a pass of a record. ``give_up`` is called when it takes too long: it
        goes on to the end of its step and no further.
        """
        current = ReconcilePass(uid, self._limit_s)
        current.unfinished.update(each.step for each in self._abandoned.get(uid, ()))
        if self._limit_s:
            current.ends_at = asyncio.get_running_loop().time() + self._limit_s
            self._watched[current] = give_up
            self._look_at(current.ends_at)
        current.token = _current.set(current)
        return current

    def end(self, current: ReconcilePass) -> bool:
        """The pass has ended. Returns whether it was abandoned before."""
        if current.token is not None:
            _current.reset(current.token)
        self._watched.pop(current, None)
        if not current.abandoned:
            return False
        others = self._abandoned[current.uid]
        others.discard(current)
        if not others:
            del self._abandoned[current.uid]
        return True

    def _look_at(self, moment: float) -> None:
        """Look for passes that take too long; one look at a time is planned."""
        if not self._is_set:
            self._is_set = True
            asyncio.get_running_loop().call_at(moment, self._look)

    def _look(self) -> None:
        self._is_set = False
        now = asyncio.get_running_loop().time()
        for current, give_up in list(self._watched.items()):
            if current.ends_at > now:
                self._look_at(current.ends_at)
                return
            del self._watched[current]
            self._abandon(current, give_up)

    def _abandon(self, current: ReconcilePass, give_up: Callable[[StepTimeout], None]) -> None:
        current.abandoned = True
        self._abandoned.setdefault(current.uid, set()).add(current)
        give_up(_timeout(current.step, self._limit_s))


def _timeout(step: str, limit_s: float) -> StepTimeout:
    return StepTimeout(
        f"the step '{step}' has taken longer than {limit_s:g} s; other records do not wait for it"
    )
