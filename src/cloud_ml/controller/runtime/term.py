"""A term of leadership: what a resource controller is given for it, and what it runs meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cloud_ml.controller.runtime.changes import Claim, WatchedKind
from cloud_ml.controller.runtime.event_handlers import EventHandler
from cloud_ml.controller.runtime.queue import KeyedQueue
from cloud_ml.controller.runtime.reconciler import Reconciler
from cloud_ml.controller.runtime.worker_pool import WorkerPool
from cloud_ml.state.base import Fence


@dataclass(frozen=True)
class Term:
    """The time from taking the lease to losing it, or to the end of the server.

    Attributes:
        fence: What every commit of the term carries.
        pool: Makes the worker pool of a queue.
    """

    fence: Fence
    pool: Callable[[KeyedQueue, Reconciler], WorkerPool]


def _nothing() -> None:
    """Nothing is to be done."""


@dataclass(frozen=True)
class ControllerTasks:
    """What a resource controller runs during a term, and what it hears of.

    Attributes:
        followed: The kinds whose records are queued when they change.
        handlers: Called with the uid of each changed record, by the name of its kind.
        gangs: The queues of records that have gangs on the engine, and which records each claims.
        before_changes: Awaited before any change is followed.
        prepare: Called once, on threads, when no change can be missed any more.
        tasks: Run until the term is over, each in a task; one that ends has failed, and ends the
            term.
        tidy: Awaited about once an hour.
        end: Called when the term is over.
    """

    followed: Sequence[WatchedKind] = ()
    handlers: Mapping[str, EventHandler] = field(default_factory=dict)
    gangs: Sequence[tuple[KeyedQueue, Claim]] = ()
    before_changes: Sequence[Callable[[], Awaitable[None]]] = ()
    prepare: Sequence[Callable[[], None]] = ()
    tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    tidy: Sequence[Callable[[], Awaitable[None]]] = ()
    end: Callable[[], None] = _nothing


class ResourceController(Protocol):
    """Moves the records of one kind, or of a few that belong together, towards what is wanted."""

    async def begin(self, term: Term) -> ControllerTasks:
        """Begin a term. Nothing of an earlier term is still running.

        Raises:
            TryAgain: The store or the engine does not answer: the term begins again later.
        """
