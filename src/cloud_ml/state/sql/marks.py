"""Marks that outlive what they were set for: tokens, idempotency keys, deletions. And the broom
for all that ages.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, bindparam, delete, insert, select, tuple_

from cloud_ml.domain.records import Kind
from cloud_ml.state import rules
from cloud_ml.state.base import Once
from cloud_ml.state.sql.records import Removed, parent_columns
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import audit, deletions, idempotency_keys, once_tokens

_FIND_TOKEN = Statement(
    select(once_tokens.c.expires_at).where(once_tokens.c.token == bindparam("this"))
)
_INSERT_TOKEN = Statement(insert(once_tokens))
_INSERT_KEY = Statement(insert(idempotency_keys))
_INSERT_DELETION = insert(deletions)
_MADE = Statement(
    select(idempotency_keys.c.uid).where(
        idempotency_keys.c.org == bindparam("its_org"),
        idempotency_keys.c.kind == bindparam("its_kind"),
        idempotency_keys.c.key == bindparam("its_key"),
    )
)
_CHUNK = 1000


def check_unseen(connection: Connection, once: Once | None) -> None:
    """Refuse a token that stands already.

    Raises:
        Unauthenticated: It does.
    """
    if once is not None and _FIND_TOKEN.one_or_none(connection, {"this": once.token}) is not None:
        raise rules.seen_before()


def add_token(connection: Connection, once: Once | None) -> None:
    """Note a token that was checked in this transaction."""
    if once is not None:
        _INSERT_TOKEN.run(connection, {"token": once.token, "expires_at": once.expires_at})


def made_by(connection: Connection, kind: Kind[Any, Any], org: str, key: str | None) -> str | None:
    """The uid of the record that an idempotency key has made, dead or alive."""
    if key is None:
        return None
    row = _MADE.one_or_none(connection, {"its_org": org, "its_kind": kind.name, "its_key": key})
    return None if row is None else row.uid


def add_key(
    connection: Connection,
    kind: Kind[Any, Any],
    org: str,
    key: str | None,
    *,
    uid: str,
    now: datetime,
) -> None:
    """Note which record an idempotency key has made."""
    if key is not None:
        _INSERT_KEY.run(
            connection, {"org": org, "kind": kind.name, "key": key, "uid": uid, "used_at": now}
        )


def add_deletion(connection: Connection, removed: Removed, *, revision: int, now: datetime) -> None:
    """Tell followers of the feed that a record is gone."""
    key = removed.key
    values = {
        "revision": revision,
        "deleted_at": now,
        "kind": key.kind,
        "uid": key.uid,
        "org": key.org,
        "name": key.name,
        **parent_columns(removed.parent),
    }
    connection.execute(_INSERT_DELETION, values)


def drop_some(connection: Connection, now: datetime, retention: rules.Retention) -> bool:
    """Drop up to a chunk of each sort of mark that is over its time; whether there may be more.

    In chunks, so that other writers wait milliseconds, not for the whole broom.
    """
    dropped = [
        _drop(connection, once_tokens, once_tokens.c.expires_at <= now),
        _drop(connection, deletions, deletions.c.deleted_at <= now - retention.deletions),
        _drop(
            connection,
            idempotency_keys,
            idempotency_keys.c.used_at <= now - retention.idempotency_keys,
        ),
    ]
    if retention.audit is not None:
        dropped.append(_drop(connection, audit, audit.c.at <= now - retention.audit))
    return max(dropped) == _CHUNK


def _drop(connection: Connection, table: Table, over: ColumnElement[bool]) -> int:
    key = (
        tuple_(*table.primary_key.columns)
        if len(table.primary_key.columns) > 1
        else next(iter(table.primary_key))
    )
    return connection.execute(
        delete(table).where(key.in_(select(*table.primary_key).where(over).limit(_CHUNK)))
    ).rowcount
