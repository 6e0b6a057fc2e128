"""The queries of ``state.base`` on a SQL database. Each is one read on a connection of its own.

They go through ``ReadConnections`` and never through the writer, so they wait for no commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from cloud_ml.domain.audit import AuditEntry, AuditFilter
from cloud_ml.domain.records import Event, Kind, Record, Summary
from cloud_ml.state import rules
from cloud_ml.state.base import Change, Lease, Page, StateStore
from cloud_ml.state.matching import EVERYTHING, Match
from cloud_ml.state.sql import audit as audit_rows
from cloud_ml.state.sql import changes, counters, finding, leases, listing, marks, records
from cloud_ml.state.sql import events as event_rows
from cloud_ml.state.sql.connections import ReadConnections
from cloud_ml.state.sql.items import ItemRecords

S = TypeVar("S")
T = TypeVar("T")


class StateQueries(StateStore):
    """The half of a state store that only reads. Thread-safe.

    Args:
        reading: Gives a connection to each query.
        items: The records with items that were used last.
    """

    def __init__(self, reading: ReadConnections, items: ItemRecords) -> None:
        self._reading = reading
        self._items = items

    def has_made(self, kind: Kind[Any, Any], org: str, idempotency_key: str) -> bool:
        """See ``StateStore.has_made``."""
        if not rules.is_storable(org, idempotency_key):
            return False
        with self._reading() as connection:
            return marks.made_by(connection, kind, org, idempotency_key) is not None

    def get(self, kind: Kind[S, T], uid: str) -> Record[S, T] | None:
        """See ``StateStore.get``."""
        if not rules.is_storable(uid):
            return None
        with self._reading() as connection:
            if kind.items is not None:
                return self._items.get(connection, kind, uid)
            row = records.get(connection, kind, uid)
        return None if row is None else records.decode(kind, row)

    def documents(
        self, kind: Kind[Any, Any], uids: Collection[str]
    ) -> Mapping[str, tuple[Any, Any]]:
        """See ``StateStore.documents``."""
        with self._reading() as connection:
            rows = records.texts(connection, kind, [uid for uid in uids if rules.is_storable(uid)])
        found: dict[str, tuple[Any, Any]] = {}
        for row in rows:
            with suppress(ValueError, RecursionError):
                found[row.uid] = (
                    rules.from_text(_document, row.spec),
                    rules.from_text(_document, row.status),
                )
        return found

    def find(self, kind: Kind[S, T], org: str, name: str) -> Record[S, T] | None:
        """See ``StateStore.find``."""
        if not rules.is_storable(org, name):
            return None
        with self._reading() as connection:
            if kind.items is not None:
                return self._items.find(connection, kind, org, name)
            row = records.find(connection, kind, org, name)
        return None if row is None else records.decode(kind, row)

    def list(
        self,
        kind: Kind[Any, Any],
        *,
        org: str | None = None,
        indexes: Collection[str] | None = None,
        match: Match = EVERYTHING,
        after: int | None = None,
        limit: int = 50,
    ) -> Page[Summary]:
        """See ``StateStore.list``."""
        rules.check_page(limit, indexes)
        if not rules.is_storable(org, match.name, match.prefix, *match.words):
            return Page((), None)
        with self._reading() as connection:
            if match == EVERYTHING:
                return listing.page(
                    connection, kind, org=org, indexes=indexes, after=after, limit=limit
                )
            return finding.page(
                connection, kind, org=org, indexes=indexes, match=match, after=after, limit=limit
            )

    def counts(self, kind: Kind[Any, Any]) -> Mapping[str, int]:
        """See ``StateStore.counts``."""
        with self._reading() as connection:
            return listing.counts(connection, kind)

    def count(self, kind: Kind[Any, Any], *, org: str, most: int, tag: str | None = None) -> int:
        """See ``StateStore.count``."""
        with self._reading() as connection:
            return listing.count(connection, kind, org=org, most=most, tag=tag)

    def events(self, uid: str, *, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        """See ``StateStore.events``."""
        rules.check_page(limit, None)
        if not rules.is_storable(uid):
            return ()
        with self._reading() as connection:
            return event_rows.read(connection, uid, after=after, limit=limit)

    def audit(
        self, audit_filter: AuditFilter, *, after: int | None = None, limit: int = 50
    ) -> Page[AuditEntry]:
        """See ``StateStore.audit``."""
        rules.check_page(limit, None)
        if not rules.is_storable(
            audit_filter.org,
            audit_filter.user,
            audit_filter.key,
            audit_filter.operation,
            audit_filter.target,
            audit_filter.outcome,
        ):
            return Page((), None)
        with self._reading() as connection:
            return audit_rows.page(connection, audit_filter, after=after, limit=limit)

    def changes(self, after: int, *, limit: int = 1000) -> Sequence[Change]:
        """See ``StateStore.changes``."""
        rules.check_page(limit, None)
        with self._reading() as connection:
            return changes.after(connection, after, limit=limit)

    def revision(self) -> int:
        """See ``StateStore.revision``."""
        with self._reading() as connection:
            return counters.revision(connection)

    def find_lease(self, name: str) -> Lease | None:
        """See ``StateStore.find_lease``."""
        with self._reading() as connection:
            return leases.find(connection, name)

    def read_here(self) -> bool:
        """See ``StateStore.read_here``."""
        return self._reading.read_here()


def _document(value: Any) -> Any:
    """A stored document as it is."""
    return value
