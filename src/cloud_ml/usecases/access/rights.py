"""One at a time takes rights away: otherwise two admins who remove each other at once would both
succeed.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator

from cloud_ml.errors import FenceLost, Unavailable
from cloud_ml.state.base import Fence, StateStore
from cloud_ml.usecases.clock import Clock

_LEASE = "rights"
_TTL_S = 5.0
_PATIENCE_S = 8.0
"""Longer than a turn: a server that was killed in its turn holds nobody up for good."""
_AGAIN_S = 0.01


class Rights:
    """The turn to take rights away, over all servers. Blocking."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @contextlib.contextmanager
    def taking(self) -> Iterator[Fence]:
        """Look who is left, and write with the fence: what was seen is true until then, or the
        write is refused.

        Raises:
            Unavailable: Others did not give the turn back, or it was lost meanwhile.
        """
        with turn(
            self._store, self._clock, _LEASE, "somebody else is changing rights at this moment"
        ) as fence:
            yield fence


@contextlib.contextmanager
def turn(store: StateStore, clock: Clock, name: str, busy: str) -> Iterator[Fence]:
    """One caller at a time, over all servers. Blocking.

    A turn takes milliseconds. Of a server that is killed meanwhile, it ends after five seconds,
    also where that server's clock was ahead.

    Args:
        store: Keeps the lease.
        clock: The time.
        name: The lease.
        busy: What to say when others do not give the turn back.

    Raises:
        Unavailable: Others did not give the turn back, or it was lost meanwhile.
    """
    holder, until = secrets.token_hex(8), time.monotonic() + _PATIENCE_S
    while True:
        lease = store.acquire_lease(name, holder, ttl_s=_TTL_S, now=clock())
        if lease is not None:
            break
        if time.monotonic() > until:
            raise Unavailable(busy, hint="try again")
        time.sleep(_AGAIN_S)
    try:
        yield Fence(name, lease.epoch)
    except FenceLost:
        raise Unavailable("it took too long; nothing was changed", hint="try again") from None
    finally:
        store.release_lease(lease)
