"""Requests that are sent again with their idempotency key. A limit that is reached meanwhile
does not refuse them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cloud_ml.domain.records import Kind
from cloud_ml.errors import Conflict, QuotaExceeded
from cloud_ml.state.base import StateStore


@contextmanager
def limit_of_new(
    store: StateStore, kind: Kind[Any, Any], org: str, idempotency_key: str | None
) -> Iterator[None]:
    """Check a limit of new records in this block. Its refusal is dropped if the key has made its
    record before.

    The caller goes on to ``store.create``, which then answers with that record. The store is asked
    only after a refusal, so that this costs nothing where there is room.

    Raises:
        QuotaExceeded, Conflict: As the block does, for a request that would make a new record.
    """
    try:
        yield
    except (QuotaExceeded, Conflict):
        if idempotency_key is None or not store.has_made(kind, org, idempotency_key):
            raise
