"""Records in memory, beside ``state.memory``: their rows, names and events, and the feed of changes.

Specs and statuses are kept as text, as a database would, so that what cannot be stored for real
cannot be stored here, and nobody can change a stored value from outside.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from cloud_ml.domain.records import Event, Kind, ParentRef, Record, Summary
from cloud_ml.state import rules
from cloud_ml.state.base import Change

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A record as it is kept."""

    summary: Summary
    generation: int
    revision: int
    delete_requested_at: datetime | None
    spec: str
    status: str
    tags: frozenset[str]
    parent: ParentRef | None


class MemoryRecords:
    """The rows of a store. Whoever calls it holds the lock of that store.

    Args:
        most_events: So many events of each record are kept, the newest.
    """

    def __init__(self, most_events: int) -> None:
        self._most_events = most_events
        self._rows: dict[str, MemoryRow] = {}
        self._names: dict[tuple[str, str, str], str] = {}
        self._events: dict[str, list[Event]] = {}
        self._deletions: list[tuple[Change, datetime]] = []
        self._event_id = 0
        self.revision = 0
        """Of the newest change."""

    def rows(self) -> Collection[MemoryRow]:
        """The rows of all kinds, in the order in which they were made."""
        return self._rows.values()

    def __getitem__(self, uid: str) -> MemoryRow:
        return self._rows[uid]

    def __contains__(self, uid: str) -> bool:
        return uid in self._rows

    def get(self, kind: Kind[Any, Any], uid: str) -> MemoryRow | None:
        """The row of a record of this kind."""
        row = self._rows.get(uid)
        return row if row is not None and row.summary.key.kind == kind.name else None

    def find(self, kind: Kind[Any, Any], org: str, name: str) -> MemoryRow | None:
        """The row of the record with this name."""
        uid = self._names.get((kind.name, org, name))
        return None if uid is None else self._rows[uid]

    def require(self, kind: Kind[Any, Any], uid: str) -> MemoryRow:
        """The row of a record that somebody wants to change.

        Raises:
            NotFound: There is none.
        """
        if (row := self.get(kind, uid)) is None:
            raise rules.not_found(kind, uid)
        return row

    def check_parent(self, parent: ParentRef | None) -> None:
        """Refuse a parent that does not exist.

        Raises:
            NotFound: It does not.
        """
        if parent is not None:
            row = self._rows.get(parent.uid)
            if row is None or row.summary.key.kind != parent.kind:
                raise rules.no_parent(parent)

    def has_children(self, uid: str) -> bool:
        """Whether other records belong to this one."""
        return any(row.parent is not None and row.parent.uid == uid for row in self.rows())

    def next_revision(self) -> int:
        """The revision of a change that is made now."""
        self.revision += 1
        return self.revision

    def put(self, row: MemoryRow, events: Sequence[Event]) -> MemoryRow:
        """Keep a row, and add these events of its record."""
        key = row.summary.key
        self._rows[key.uid] = row
        self._names[key.kind, key.org, key.name] = key.uid
        self.add_events(key.uid, events)
        return row

    def update(
        self, row: MemoryRow, now: datetime, events: Sequence[Event], **changed: Any
    ) -> MemoryRow:
        """Keep a row with these fields changed and a new revision."""
        row = replace(row, **changed)
        line = replace(row.summary, updated_at=now)
        return self.put(replace(row, summary=line, revision=self.next_revision()), events)

    def rename(self, row: MemoryRow, name: str, now: datetime) -> MemoryRow:
        """Keep a row under another name, which is free."""
        key = row.summary.key
        del self._names[key.kind, key.org, key.name]
        line = replace(row.summary, key=replace(key, name=name))
        return self.update(row, now, (), summary=line)

    def remove(self, row: MemoryRow, at: datetime) -> None:
        """Drop a row with its name and events. The feed keeps that it is gone."""
        key = row.summary.key
        del self._rows[key.uid], self._names[key.kind, key.org, key.name], self._events[key.uid]
        gone = replace(_change(row), revision=self.next_revision(), gone=True)
        self._deletions.append((gone, at))

    def add_events(self, uid: str, events: Sequence[Event]) -> None:
        """Add events, and drop the oldest beyond the limit."""
        kept = self._events.setdefault(uid, [])
        for event in events:
            self._event_id += 1
            reason, message = rules.printable(event.reason), rules.printable(event.message)
            kept.append(replace(event, id=self._event_id, reason=reason, message=message))
        del kept[: -self._most_events]

    def events(self, uid: str, *, after: int) -> Sequence[Event]:
        """The events of a record with a number above this one."""
        return tuple(event for event in self._events.get(uid, ()) if event.id > after)

    def changes(self, after: int) -> Sequence[Change]:
        """What changed after this revision, oldest first."""
        feed = [_change(row) for row in self.rows()] + [change for change, _ in self._deletions]
        newer = (change for change in feed if change.revision > after)
        return tuple(sorted(newer, key=lambda change: change.revision))

    def drop_deletions(self, since: datetime) -> None:
        """Forget the records that were removed at this time or before."""
        self._deletions = [(change, at) for change, at in self._deletions if at > since]


def documents(rows: Collection[MemoryRow]) -> dict[str, tuple[Any, Any]]:
    """The specs and statuses of rows as documents, by uid."""
    return {row.summary.key.uid: (json.loads(row.spec), json.loads(row.status)) for row in rows}


def decode_spec(kind: Kind[S, T], row: MemoryRow) -> S:
    """The spec of a row."""
    return kind.decode_spec(json.loads(row.spec))


def decode_status(kind: Kind[S, T], row: MemoryRow) -> T:
    """The status of a row."""
    return kind.decode_status(json.loads(row.status))


def decode(kind: Kind[S, T], row: MemoryRow) -> Record[S, T]:
    """The record of a row."""
    line = row.summary
    return Record(
        key=line.key,
        owner=line.owner,
        generation=row.generation,
        revision=row.revision,
        created_at=line.created_at,
        updated_at=line.updated_at,
        spec=decode_spec(kind, row),
        status=decode_status(kind, row),
        delete_requested_at=row.delete_requested_at,
        parent=row.parent,
    )


def _change(row: MemoryRow) -> Change:
    key = row.summary.key
    return Change(row.revision, key.kind, key.uid, key.org, key.name, parent=row.parent)
