"""How long the leases of others have stood still, by a clock that nobody sets.

A lease says when it ends by the clock of the one who took it. Where that clock was ahead and is put
right, the lease of a killed server would end hours later. Who is alive renews its lease in time, so
one that did not change for its whole length is abandoned, whatever it says.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cloud_ml.state.base import Lease


class LeaseObservations:
    """What one process has seen of leases that others hold. One entry for each name.

    Args:
        monotonic: A clock in seconds that never jumps.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._observed: dict[str, tuple[Lease, float]] = {}

    def is_abandoned(self, lease: Lease | None, *, ttl_s: float) -> bool:
        """Whether the lease has not changed for ``ttl_s`` since it was first seen like this."""
        if lease is None:
            return False
        now = self._monotonic()
        before, since = self._observed.get(lease.name, (None, now))
        if before != lease:
            self._observed[lease.name] = (lease, now)
            return False
        return now - since >= ttl_s

    def forget(self, name: str) -> None:
        """The lease of that name is this process's now."""
        self._observed.pop(name, None)
