"""Leases in memory, beside ``state.memory``, and the fences they give."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from cloud_ml.state import rules
from cloud_ml.state.base import Fence, Lease
from cloud_ml.state.lease_observations import LeaseObservations


class MemoryLeases:
    """The leases of a store. Whoever writes to it holds the lock of that store."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._observations = LeaseObservations()

    def check_fence(self, fence: Fence | None) -> None:
        """Refuse a write whose lease has passed on.

        Raises:
            FenceLost: It has.
        """
        if fence is not None:
            lease = self._leases.get(fence.name)
            rules.check_fence(fence, None if lease is None else lease.epoch)

    def find(self, name: str) -> Lease | None:
        """The lease as it was taken last."""
        return self._leases.get(name)

    def acquire(self, name: str, holder: str, *, ttl_s: float, now: datetime) -> Lease | None:
        """Take or extend a lease, or ``None`` while somebody else holds it."""
        current = self._leases.get(name)
        abandoned = self._observations.is_abandoned(current, ttl_s=ttl_s)
        lease = rules.next_lease(current, name, holder, ttl_s=ttl_s, now=now, abandoned=abandoned)
        if lease is not None:
            self._leases[name] = lease
            self._observations.forget(name)
        return lease

    def release(self, lease: Lease) -> None:
        """Let a lease expire, unless it has passed on."""
        current = self._leases.get(lease.name)
        if current is not None and current.epoch == lease.epoch:
            # Keep the entry for its epoch: the next holder must get a higher one.
            self._leases[lease.name] = replace(current, expires_at=rules.LONG_AGO)
