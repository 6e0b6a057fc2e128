"""How many records an organisation may have: the database is shared by all."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

from cloud_ml.domain.record_sizes import CLASSES, UNIT_BYTES, size_tag, units_of
from cloud_ml.domain.records import Kind
from cloud_ml.errors import QuotaExceeded
from cloud_ml.state.base import StateStore
from cloud_ml.usecases.clock import Clock

_STALE = timedelta(seconds=60)


class RecordLimits:
    """Refuses records beyond a bound. Blocking; thread-safe.

    Records are counted once a minute, and more often at the bound; in between, new ones of this
    server are added. So the bound holds about, and costs nothing with each record.

    Args:
        most: Records of one kind that an organisation may have; 0 for any number.
    """

    def __init__(self, store: StateStore, clock: Clock, most: int) -> None:
        self._store = store
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._counted: dict[tuple[str, str], tuple[datetime, int]] = {}

    def check(self, kind: Kind[Any, Any], org: str, what: str, spec: object = None) -> None:
        """Count one more record, or refuse it. A large one counts as many.

        Args:
            kind: The kind of the record.
            org: The organisation.
            what: Such records, for the message: ``jobs``.
            spec: What is to be stored.

        Raises:
            QuotaExceeded: There are as many as there may be.
        """
        if not self._most:
            return
        key, now = (kind.name, org), self._clock()
        with self._lock:
            at, known = self._counted.get(key, (None, 0))
        if at is None or not timedelta(0) <= now - at < _STALE or known >= self._most:
            at, known = now, self._count(kind, org)
        more = units_of(spec)
        if known + more > self._most:
            raise QuotaExceeded(
                f"{org} has {self._most} {what}, saved and ended ones among them; one more is "
                "refused"
                if more == 1
                else f"{org} may store {max(0, self._most - known)} more {what}; this one "
                f"counts as {more}",
                allowed=f"at most {self._most} {what} (the operator's setting "
                "api.records_per_org); "
                f"one of more than {UNIT_BYTES // 1024} KiB counts as several",
                hint=f"Delete {what} that are not needed any more.",
            )
        with self._lock:
            self._counted[key] = at, known + more

    def _count(self, kind: Kind[Any, Any], org: str) -> int:
        """Units of an organisation's records, about up to the bound."""
        known = self._store.count(kind, org=org, most=self._most)
        for units in CLASSES:
            if known < self._most:
                large = self._store.count(
                    kind, org=org, most=self._most // units + 1, tag=size_tag(units)
                )
                known += large * (units - 1)
        return known
