"""Records whose status has a long list: read with its items, and written item by item.

The record as it was last read or written is kept. To read it again takes one narrow row while its
revision is the same, and what is newer else; to write it takes what has changed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Text,
    bindparam,
    cast,
    insert,
    null,
    select,
    union_all,
    update,
)

from cloud_ml.domain.records import Kind, Record
from cloud_ml.errors import Damaged, InvalidRequest
from cloud_ml.settings.sizes import MIB
from cloud_ml.state import items, rules
from cloud_ml.state.items import ItemChanges, ItemRow
from cloud_ml.state.sql import records
from cloud_ml.state.sql.statements import Row, Statement
from cloud_ml.state.sql.tables import records as record_table
from cloud_ml.state.sql.tables import status_items

S = TypeVar("S")
T = TypeVar("T")

MOST_KEPT = 256 * MIB
"""About so many bytes of records are kept in memory at most, and the record that was used last."""
_OBJECT_BYTES, _PER_CHARACTER = 400, 4
"""What a row takes in memory: for its objects, and for each character of its document, as numbers of
few characters are objects, too.
"""
_COLUMNS = status_items.c
_ROW = ("list", "position", "document")
_THIS_RECORD = (record_table.c.uid == bindparam("this")) & (
    record_table.c.kind == bindparam("its_kind")
)
_BY_UID = Statement(select(record_table.c.uid, record_table.c.revision).where(_THIS_RECORD))
_BY_NAME = Statement(
    select(record_table.c.uid, record_table.c.revision).where(
        record_table.c.kind == bindparam("its_kind"),
        record_table.c.org == bindparam("its_org"),
        record_table.c.name == bindparam("its_name"),
    )
)
_WHOLE = [column for column in record_table.c if column.name not in ("index_value", "title")]


def _nothing(column: Column[Any]) -> Any:
    """NULL in the place of a column. Of a text without its collation, which no cast takes."""
    kind = Text() if isinstance(column.type, Text) else column.type
    return cast(null(), kind).label(column.name)


_LOAD = Statement(
    union_all(
        select(*_WHOLE, *(_nothing(_COLUMNS[name]) for name in _ROW)).where(_THIS_RECORD),
        select(*map(_nothing, _WHOLE), *(_COLUMNS[name] for name in _ROW)).where(
            _COLUMNS.record == select(record_table.c.number).where(_THIS_RECORD).scalar_subquery(),
            _COLUMNS.revision > bindparam("known"),
        ),
    )
)
"""One statement, so that the record and its items are of one moment."""
_SET_STATUS = Statement(
    update(record_table)
    .where(_THIS_RECORD, record_table.c.revision == bindparam("expected"))
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("status", "index_value", "revision", "updated_at")
        }
    )
    .returning(record_table.c.number)
)
"""It returns nothing that is known: the spec of a study may be long."""
_INSERT = Statement(insert(status_items))
_CHANGE = Statement(
    update(status_items)
    .where(
        *(_COLUMNS[name] == bindparam(f"this_{name}") for name in ("record", "list", "position"))
    )
    .values(revision=bindparam("new_revision"), document=bindparam("new_document"))
)


@dataclass(frozen=True)
class KeptRecord(Generic[S, T]):
    """A record as it was, its number, and about how many bytes it takes in memory."""

    record: Record[S, T]
    number: int
    weight: int


def read_whole(connection: Connection, kind: Kind[S, T], uid: str) -> Record[S, T] | None:
    """The record with its items, all of them from the database; ``None`` if it is gone.

    Raises:
        Damaged: It cannot be read.
    """
    found = _load(connection, kind, uid, None)
    return None if found is None else found.record


class ItemRecords:
    """The records with items that were used last. Thread-safe."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[str, KeptRecord[Any, Any]] = OrderedDict()
        self._weight = 0

    def get(self, connection: Connection, kind: Kind[S, T], uid: str) -> Record[S, T] | None:
        """The record, or ``None``."""
        row = _BY_UID.one_or_none(connection, {"this": uid, "its_kind": kind.name})
        return self._at(connection, kind, uid, row)

    def find(
        self, connection: Connection, kind: Kind[S, T], org: str, name: str
    ) -> Record[S, T] | None:
        """The living record of that name, or ``None``."""
        values = {"its_kind": kind.name, "its_org": org, "its_name": name}
        row = _BY_NAME.one_or_none(connection, values)
        return None if row is None else self._at(connection, kind, row.uid, row)

    def add(
        self, connection: Connection, kind: Kind[Any, T], number: int, status: T, revision: int
    ) -> None:
        """Write the items of a new record."""
        _, changes = items.find_changes(kind, (), status)
        _write(connection, number, changes, revision)

    def set_status(
        self,
        connection: Connection,
        kind: Kind[S, T],
        uid: str,
        status: T,
        *,
        expected: int,
        revision: int,
        now: datetime,
    ) -> KeptRecord[S, T] | None:
        """Write a status, and of its items what has changed, if the record is at ``expected``;
        ``None`` if it is not, or is gone.

        Returns what to ``keep`` once it is committed.
        """
        known = self._kept(uid)
        if known is None or known.record.revision != expected:
            known = _load(connection, kind, uid, known)
        if known is None or known.record.revision != expected:
            return None
        before = known.record
        stored, changes = items.find_changes(kind, items.get_items(kind, before.status), status)
        values = {
            "this": uid,
            "its_kind": kind.name,
            "expected": expected,
            "new_status": rules.to_text(kind.decode_status, items.without_items(kind, status)),
            "new_index_value": kind.index_of(status),
            "new_revision": revision,
            "new_updated_at": now,
        }
        if _SET_STATUS.one_or_none(connection, values) is None:
            return None
        _write(connection, known.number, changes, revision)
        record = replace(before, status=stored, revision=revision, updated_at=now)
        weight = known.weight + _weight_of([*changes.new, *changes.changed])
        return KeptRecord(record, known.number, weight)

    def keep(self, known: KeptRecord[Any, Any]) -> None:
        """Keep a record that was read or committed, unless a later one is known."""
        record = known.record
        with self._lock:
            before = self._known.get(record.key.uid)
            if before is not None and before.record.revision >= record.revision:
                return
            self._drop(record.key.uid)
            self._known[record.key.uid] = known
            self._weight += known.weight
            while self._weight > self._most and len(self._known) > 1:
                self._drop(next(iter(self._known)))

    def forget(self, uid: str) -> None:
        """The record is gone."""
        with self._lock:
            self._drop(uid)

    def load(self, connection: Connection, kind: Kind[S, T], uid: str) -> Record[S, T] | None:
        """The record as it stands in this transaction, which is not kept."""
        found = _load(connection, kind, uid, self._kept(uid))
        return None if found is None else found.record

    def _at(
        self, connection: Connection, kind: Kind[S, T], uid: str, row: Row | None
    ) -> Record[S, T] | None:
        known = self._kept(uid)
        if row is not None and (known is None or known.record.revision != row.revision):
            known = _load(connection, kind, uid, known)
            if known is not None:
                self.keep(known)
        if row is None or known is None:
            self.forget(uid)
            return None
        return known.record

    def _kept(self, uid: str) -> KeptRecord[Any, Any] | None:
        with self._lock:
            if (known := self._known.get(uid)) is not None:
                self._known.move_to_end(uid)
            return known

    def _drop(self, uid: str) -> None:
        if (known := self._known.pop(uid, None)) is not None:
            self._weight -= known.weight


def _load(
    connection: Connection, kind: Kind[Any, Any], uid: str, known: KeptRecord[Any, Any] | None
) -> KeptRecord[Any, Any] | None:
    """A record with its items, those that are known taken from there."""
    after = -1 if known is None else known.record.revision
    rows = _LOAD.rows(connection, {"this": uid, "its_kind": kind.name, "known": after})
    row = next((row for row in rows if row.number is not None), None)
    if row is None:
        return None
    record = records.decode(kind, row)
    if known is not None and known.record.revision > record.revision:  # it was read meanwhile
        return known
    before = () if known is None else items.get_items(kind, known.record.status)
    written = [ItemRow(row.list, row.position, row.document) for row in rows if row.number is None]
    try:
        status = items.join_items(kind, record.status, before, written)
    except (ValueError, RecursionError, InvalidRequest) as error:
        raise Damaged(
            f"the items of {kind.name} {uid} cannot be read: {error}",
            hint="Restore a backup with 'cloudml server restore'.",
        ) from error
    record = replace(record, status=status)
    weight = _weight_of(written) + (0 if known is None else known.weight)
    if known is None or known.record.generation != record.generation:
        weight += _bytes_of(row.spec)
    return KeptRecord(record, row.number, weight)


def _weight_of(rows: Iterable[ItemRow]) -> int:
    """What rows take in memory. One that replaces another counts beside it until the record is read
    again: a trial is written a few times.
    """
    return sum(_bytes_of(row.document) for row in rows)


def _bytes_of(document: str) -> int:
    return _OBJECT_BYTES + _PER_CHARACTER * len(document)


def _write(connection: Connection, number: int, changes: ItemChanges, revision: int) -> None:
    if changes.new:
        _INSERT.run_many(
            connection,
            [{"record": number, "revision": revision, **row._asdict()} for row in changes.new],
        )
    if changes.changed:
        _CHANGE.run_many(connection, [_change(number, row, revision) for row in changes.changed])


def _change(number: int, row: ItemRow, revision: int) -> dict[str, Any]:
    return {
        "this_record": number,
        "this_list": row.list,
        "this_position": row.position,
        "new_revision": revision,
        "new_document": row.document,
    }
