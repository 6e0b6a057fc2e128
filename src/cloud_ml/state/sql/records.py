"""Rows of ``records``: read, written, and made into ``Record``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from cloud_ml.domain.records import Key, Kind, ParentRef, Record
from cloud_ml.errors import Damaged, InvalidRequest
from cloud_ml.state import rules
from cloud_ml.state.sql.statements import Row, Statement
from cloud_ml.state.sql.tables import records

S = TypeVar("S")
T = TypeVar("T")
D = TypeVar("D")

_COLUMNS = records.c
_WHOLE = [column for column in _COLUMNS if column.name not in ("index_value", "title")]
_THIS = (_COLUMNS.uid == bindparam("this")) & (_COLUMNS.kind == bindparam("its_kind"))

_GET = Statement(select(*_WHOLE).where(_THIS))
_TEXTS = select(_COLUMNS.uid, _COLUMNS.spec, _COLUMNS.status).where(
    _COLUMNS.uid.in_(bindparam("these", expanding=True)), _COLUMNS.kind == bindparam("its_kind")
)
_FIND = Statement(
    select(*_WHOLE).where(
        _COLUMNS.kind == bindparam("its_kind"),
        _COLUMNS.org == bindparam("its_org"),
        _COLUMNS.name == bindparam("its_name"),
    )
)
_INSERT = Statement(insert(records).returning(*_WHOLE))
_SET_STATUS = Statement(
    update(records)
    .where(_THIS, _COLUMNS.revision == bindparam("expected"))
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("status", "index_value", "revision", "updated_at")
        }
    )
    .returning(*_WHOLE)
)
_SET_SPEC = Statement(
    update(records)
    .where(_THIS)
    .values({name: bindparam(f"new_{name}") for name in ("spec", "revision", "updated_at")})
    .values(generation=_COLUMNS.generation + 1)
    .returning(*_WHOLE)
)
_SET_NAME = Statement(
    update(records)
    .where(_THIS)
    .values({name: bindparam(f"new_{name}") for name in ("name", "revision", "updated_at")})
    .returning(*_WHOLE)
)
_TOUCH = Statement(
    update(records)
    .where(_THIS)
    .values({name: bindparam(f"new_{name}") for name in ("revision", "updated_at")})
)
_MARK = Statement(
    update(records)
    .where(_THIS)
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("delete_requested_at", "revision", "updated_at")
        }
    )
    .returning(*_WHOLE)
)
_REMOVE = Statement(
    delete(records)
    .where(_THIS)
    .returning(_COLUMNS.org, _COLUMNS.name, _COLUMNS.parent_kind, _COLUMNS.parent_uid)
)
_CHILD = Statement(
    select(_COLUMNS.number).where(_COLUMNS.parent_uid == bindparam("its_uid")).limit(1)
)


class Removed(NamedTuple):
    """What a record was that is gone."""

    key: Key
    parent: ParentRef | None


def get(connection: Connection, kind: Kind[Any, Any], uid: str) -> Row | None:
    """The row of a record, or ``None``."""
    return _GET.one_or_none(connection, {"this": uid, "its_kind": kind.name})


def texts(connection: Connection, kind: Kind[Any, Any], uids: Sequence[str]) -> Sequence[Row]:
    """Specs and statuses of those records that there are, as they are stored, in any order."""
    if not uids:
        return ()
    return connection.execute(_TEXTS, {"these": list(uids), "its_kind": kind.name}).all()


def find(connection: Connection, kind: Kind[Any, Any], org: str, name: str) -> Row | None:
    """The row of the living record of that name, or ``None``."""
    return _FIND.one_or_none(connection, {"its_kind": kind.name, "its_org": org, "its_name": name})


def add(connection: Connection, values: Mapping[str, Any]) -> Row:
    """Insert a row; returns it as it is stored."""
    return _INSERT.one(connection, values)


def set_status(
    connection: Connection,
    kind: Kind[Any, Any],
    uid: str,
    *,
    expected: int,
    status: str,
    index_value: str,
    revision: int,
    now: datetime,
) -> Row | None:
    """Write a status if the record is at ``expected``; ``None`` if it is not, or is gone."""
    return _SET_STATUS.one_or_none(
        connection,
        {
            "this": uid,
            "its_kind": kind.name,
            "expected": expected,
            "new_status": status,
            "new_index_value": index_value,
            "new_revision": revision,
            "new_updated_at": now,
        },
    )


def set_spec(
    connection: Connection,
    kind: Kind[Any, Any],
    uid: str,
    *,
    spec: str,
    revision: int,
    now: datetime,
) -> Row:
    """Write a spec and raise the generation of a record that is there."""
    values = {"new_spec": spec, "new_revision": revision, "new_updated_at": now}
    return _SET_SPEC.one(connection, {"this": uid, "its_kind": kind.name, **values})


def set_name(
    connection: Connection,
    kind: Kind[Any, Any],
    uid: str,
    *,
    name: str,
    revision: int,
    now: datetime,
) -> Row:
    """Give a record that is there another name."""
    values = {"new_name": name, "new_revision": revision, "new_updated_at": now}
    return _SET_NAME.one(connection, {"this": uid, "its_kind": kind.name, **values})


def touch(
    connection: Connection, kind: Kind[Any, Any], uid: str, *, revision: int, now: datetime
) -> None:
    """Give a record that is there a newer revision: what lies beside it has changed."""
    values = {"new_revision": revision, "new_updated_at": now}
    _TOUCH.run(connection, {"this": uid, "its_kind": kind.name, **values})


def mark_for_deletion(
    connection: Connection, kind: Kind[Any, Any], uid: str, *, revision: int, now: datetime
) -> Row:
    """Mark a record that is there."""
    values = {"new_delete_requested_at": now, "new_revision": revision, "new_updated_at": now}
    return _MARK.one(connection, {"this": uid, "its_kind": kind.name, **values})


def remove(connection: Connection, kind: Kind[Any, Any], uid: str) -> Removed | None:
    """Remove a record, its tags and its events; what it was, if it was there."""
    row = _REMOVE.one_or_none(connection, {"this": uid, "its_kind": kind.name})
    return None if row is None else Removed(Key(kind.name, row.org, row.name, uid), parent_of(row))


def has_children(connection: Connection, uid: str) -> bool:
    """Whether there are records whose parent has this uid."""
    return _CHILD.one_or_none(connection, {"its_uid": uid}) is not None


def check_parent(connection: Connection, parent: ParentRef | None) -> None:
    """Refuse a parent that is not there. Call it once no other writer can come in between.

    Raises:
        NotFound: There is no such record.
    """
    if parent is None:
        return
    if _GET.one_or_none(connection, {"this": parent.uid, "its_kind": parent.kind}) is None:
        raise rules.no_parent(parent)


def parent_columns(parent: ParentRef | None) -> Mapping[str, str | None]:
    """A parent as the columns that hold it."""
    return {
        "parent_kind": None if parent is None else parent.kind,
        "parent_uid": None if parent is None else parent.uid,
    }


def parent_of(row: Row) -> ParentRef | None:
    """The parent that a row names."""
    return None if row.parent_uid is None else ParentRef(row.parent_kind, row.parent_uid)


def decode(kind: Kind[S, T], row: Row) -> Record[S, T]:
    """A row as a record.

    Raises:
        Damaged: Its spec or status cannot be read.
    """
    return Record(
        key=Key(kind.name, row.org, row.name, row.uid),
        owner=row.owner,
        generation=row.generation,
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
        spec=decode_spec(kind, row),
        status=_decoded(kind.decode_status, row.status, f"the status of {kind.name} {row.uid}"),
        delete_requested_at=row.delete_requested_at,
        parent=parent_of(row),
    )


def decode_spec(kind: Kind[S, T], row: Row) -> S:
    """The spec of a row.

    Raises:
        Damaged: It cannot be read.
    """
    return _decoded(kind.decode_spec, row.spec, f"the spec of {kind.name} {row.uid}")


def _decoded(decoder: Callable[[Any], D], text: str, what: str) -> D:
    try:
        return rules.from_text(decoder, text)
    except (ValueError, RecursionError, InvalidRequest) as error:
        raise Damaged(
            f"{what} cannot be read: {error}",
            hint="Restore a backup with 'cloudml server restore'.",
        ) from error
