"""What was said about records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from cloud_ml.domain.records import Event, EventType
from cloud_ml.state.rules import printable
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import events, records

_INSERT = Statement(insert(events))
_OF_RECORD = Statement(
    select(events)
    .where(events.c.uid == bindparam("this"), events.c.id > bindparam("after"))
    .order_by(events.c.id)
    .limit(bindparam("rows"))
)
_BEYOND = (
    select(events.c.id)
    .where(events.c.uid == bindparam("this"))
    .order_by(events.c.id.desc())
    .limit(1)
    .offset(bindparam("most"))
    .scalar_subquery()
)
_DROP_OLD = Statement(
    delete(events).where(events.c.uid == bindparam("this"), events.c.id <= _BEYOND)
)
_IS_THERE = Statement(select(records.c.number).where(records.c.uid == bindparam("this")))


def append(connection: Connection, uid: str, new_events: Sequence[Event], *, last_id: int) -> None:
    """Write events of a record that is there; the last of them gets ``last_id``."""
    if new_events:
        first_id = last_id - len(new_events) + 1
        _INSERT.run_many(
            connection, [_row(uid, id_, event) for id_, event in enumerate(new_events, first_id)]
        )


def drop_old(connection: Connection, uid: str, *, most: int) -> None:
    """Keep the newest events of a record, ``most`` of them: a record that is changed without end
    fills no disk.
    """
    _DROP_OLD.run(connection, {"this": uid, "most": most})


def has_record(connection: Connection, uid: str) -> bool:
    """Whether there is a record to speak of."""
    return _IS_THERE.one_or_none(connection, {"this": uid}) is not None


def read(connection: Connection, uid: str, *, after: int, limit: int) -> Sequence[Event]:
    """Events of a record in order."""
    rows = _OF_RECORD.rows(connection, {"this": uid, "after": after, "rows": limit})
    return tuple(
        Event(row.at, row.reason, row.message, EventType(row.type), row.id) for row in rows
    )


def _row(uid: str, id_: int, event: Event) -> dict[str, Any]:
    return {
        "uid": uid,
        "id": id_,
        "at": event.at,
        "type": event.type.value,
        "reason": printable(event.reason),
        "message": printable(event.message),
    }
