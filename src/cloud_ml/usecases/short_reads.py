"""Reads of single records, made where they are asked for as long as the disk is quick."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeAlias, TypeVar

from cloud_ml.errors import Unavailable
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.offload import Offload

P = ParamSpec("P")
T = TypeVar("T")

_PAUSE_S = 1.0


class ShortReads:
    """Calls a read of the store from an event loop: in the loop if nothing can keep it waiting,
    else on a thread.

    To find a record in SQLite takes some twenty microseconds; the way to a thread and back takes
    longer, and longer yet when threads take turns. A store that waits for a network says so
    (``StateStore.read_here``), and its reads go to threads. So do all, for a second, after one that
    took longer than ``slow_ms``: a disk that stalls holds up the loop once, not with each request.
    Belongs to one event loop.

    Args:
        store: Whose reads they are.
        offload: The threads.
        slow_ms: Beyond it a read was slow; 0 sends every read to a thread.
    """

    def __init__(
        self,
        store: StateStore,
        offload: Offload,
        *,
        slow_ms: float,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._store = store
        self._offload = offload
        self._slow_s = slow_ms / 1000
        self._now = now
        self._thread: int | None = None
        self._not_before = 0.0

    async def __call__(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return ``read(*args, **kwargs)``, which looks at a few records that an index finds."""
        began = self._now()
        if began >= self._not_before and self._may_here():
            try:
                return read(*args, **kwargs)
            except Unavailable:  # it would have had to wait
                self._not_before = began + _PAUSE_S
            finally:
                if (ended := self._now()) - began > self._slow_s:
                    self._not_before = ended + _PAUSE_S
        return await self._offload(functools.partial(read, *args, **kwargs))

    def _may_here(self) -> bool:
        if self._thread is None:
            may = self._slow_s > 0 and self._store.read_here()
            self._thread = threading.get_ident() if may else 0
        return self._thread == threading.get_ident()


Reads: TypeAlias = ShortReads | Offload
"""How somebody reads a few records; on threads where nothing better is at hand."""
