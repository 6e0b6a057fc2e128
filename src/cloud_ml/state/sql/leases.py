"""Leases, and the fences they give."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, select, update

from cloud_ml.state import rules
from cloud_ml.state.base import Fence, Lease
from cloud_ml.state.lease_observations import LeaseObservations
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import leases

_READ = select(leases).where(leases.c.name == bindparam("this"))
_EPOCH = Statement(select(leases.c.epoch).where(leases.c.name == bindparam("this")))
_INSERT = insert(leases)
_UPDATE = (
    update(leases)
    .where(leases.c.name == bindparam("this"))
    .values({name: bindparam(f"new_{name}") for name in ("holder", "epoch", "expires_at")})
)
_RELEASE = (
    update(leases)
    .where(leases.c.name == bindparam("this"), leases.c.epoch == bindparam("its_epoch"))
    .values(expires_at=rules.LONG_AGO)
)


def check_fence(connection: Connection, fence: Fence | None) -> None:
    """Refuse a write whose lease has passed on.

    Raises:
        FenceLost: It has.
    """
    if fence is not None:
        row = _EPOCH.one_or_none(connection, {"this": fence.name})
        rules.check_fence(fence, None if row is None else row.epoch)


def find(connection: Connection, name: str) -> Lease | None:
    """The lease as it was taken last."""
    row = connection.execute(_READ, {"this": name}).one_or_none()
    return None if row is None else Lease(row.name, row.holder, row.epoch, row.expires_at)


def acquire(
    connection: Connection,
    name: str,
    holder: str,
    *,
    ttl_s: float,
    now: datetime,
    observations: LeaseObservations,
) -> Lease | None:
    """Take or extend a lease, or ``None`` while somebody else holds it."""
    current = find(connection, name)
    abandoned = observations.is_abandoned(current, ttl_s=ttl_s)
    lease = rules.next_lease(current, name, holder, ttl_s=ttl_s, now=now, abandoned=abandoned)
    if lease is not None:
        _write(connection, lease, new=current is None)
    return lease


def release(connection: Connection, lease: Lease) -> None:
    """Let a lease expire, unless it has passed on."""
    connection.execute(_RELEASE, {"this": lease.name, "its_epoch": lease.epoch})


def _write(connection: Connection, lease: Lease, *, new: bool) -> None:
    values = {"holder": lease.holder, "epoch": lease.epoch, "expires_at": lease.expires_at}
    if new:
        connection.execute(_INSERT, {"name": lease.name, **values})
    else:
        connection.execute(
            _UPDATE,
            {"this": lease.name, **{f"new_{name}": value for name, value in values.items()}},
        )
