"""Rows of ``records``: read, written, and made into ``Record``."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from cloud_ml.domain.records import Key, Kind, Record
from cloud_ml.errors import Damaged, InvalidRequest
from cloud_ml.state.sql.tables import records

S = TypeVar("S")
T = TypeVar("T")
D = TypeVar("D")

_KEPT, _KEPT_CHARACTERS = 512, 16_384
"""How many documents are kept decoded, none longer than so much."""
_COLUMNS = records.c
_WHOLE = [column for column in _COLUMNS if column.name not in ("index_value", "title")]
_THIS = (_COLUMNS.uid == bindparam("this")) & (_COLUMNS.kind == bindparam("its_kind"))

_GET = select(*_WHOLE).where(_THIS)
_FIND = select(*_WHOLE).where(
    _COLUMNS.kind == bindparam("its_kind"), _COLUMNS.org == bindparam("its_org"), _COLUMNS.name == bindparam("its_name")
)
_INSERT = insert(records).returning(*_WHOLE)
_SET_STATUS = (
    update(records)
    .where(_THIS, _COLUMNS.revision == bindparam("expected"))
    .values({name: bindparam(f"new_{name}") for name in ("status", "index_value", "revision", "updated_at")})
    .returning(*_WHOLE)
)
_SET_SPEC = (
    update(records)
    .where(_THIS)
    .values({name: bindparam(f"new_{name}") for name in ("spec", "revision", "updated_at")})
    .values(generation=_COLUMNS.generation + 1)
    .returning(*_WHOLE)
)
_MARK = (
    update(records)
    .where(_THIS)
    .values({name: bindparam(f"new_{name}") for name in ("delete_requested_at", "revision", "updated_at")})
    .returning(*_WHOLE)
)
_REMOVE = delete(records).where(_THIS).returning(_COLUMNS.org, _COLUMNS.name)


def get(connection: Connection, kind: Kind[Any, Any], uid: str) -> Row[Any] | None:
    """The row of a record, or ``None``."""
    return connection.execute(_GET, {"this": uid, "its_kind": kind.name}).one_or_none()


def find(connection: Connection, kind: Kind[Any, Any], org: str, name: str) -> Row[Any] | None:
    """The row of the living record of that name, or ``None``."""
    return connection.execute(_FIND, {"its_kind": kind.name, "its_org": org, "its_name": name}).one_or_none()


def add(connection: Connection, values: Mapping[str, Any]) -> Row[Any]:
    """Insert a row; returns it as it is stored."""
    return connection.execute(_INSERT, values).one()


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
) -> Row[Any] | None:
    """Write a status if the record is at ``expected``; ``None`` if it is not, or is gone."""
    return connection.execute(
        _SET_STATUS,
        {
            "this": uid,
            "its_kind": kind.name,
            "expected": expected,
            "new_status": status,
            "new_index_value": index_value,
            "new_revision": revision,
            "new_updated_at": now,
        },
    ).one_or_none()


def set_spec(
    connection: Connection, kind: Kind[Any, Any], uid: str, *, spec: str, revision: int, now: datetime
) -> Row[Any]:
    """Write a spec and raise the generation of a record that is there."""
    values = {"new_spec": spec, "new_revision": revision, "new_updated_at": now}
    return connection.execute(_SET_SPEC, {"this": uid, "its_kind": kind.name, **values}).one()


def mark_for_deletion(
    connection: Connection, kind: Kind[Any, Any], uid: str, *, revision: int, now: datetime
) -> Row[Any]:
    """Mark a record that is there."""
    values = {"new_delete_requested_at": now, "new_revision": revision, "new_updated_at": now}
    return connection.execute(_MARK, {"this": uid, "its_kind": kind.name, **values}).one()


def remove(connection: Connection, kind: Kind[Any, Any], uid: str) -> Key | None:
    """Remove a record, its tags and its events; what it was, if it was there."""
    row = connection.execute(_REMOVE, {"this": uid, "its_kind": kind.name}).one_or_none()
    return None if row is None else Key(kind.name, row.org, row.name, uid)


def decode(kind: Kind[S, T], row: Row[Any]) -> Record[S, T]:
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
    )


def decode_spec(kind: Kind[S, T], row: Row[Any]) -> S:
    """The spec of a row.

    Raises:
        Damaged: It cannot be read.
    """
    return _decoded(kind.decode_spec, row.spec, f"the spec of {kind.name} {row.uid}")


def _decoded(decoder: Callable[[Any], D], text: str, what: str) -> D:
    try:
        return _remembered(decoder, text) if len(text) <= _KEPT_CHARACTERS else decoder(json.loads(text))
    except (ValueError, RecursionError, InvalidRequest) as error:
        raise Damaged(
            f"{what} cannot be read: {error}",
            hint="Restore a backup with 'cloudml server restore'.",
        ) from error


@functools.lru_cache(_KEPT)
def _remembered(decoder: Callable[[Any], Any], text: str) -> Any:
    """Documents are read far more often than written, a job's some twenty times. Nobody alters what is decoded."""
    return decoder(json.loads(text))
