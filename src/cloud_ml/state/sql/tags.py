"""The words under which records are found."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, Text, bindparam, delete, exists, insert, select

from cloud_ml.state.rules import printable
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import Number, record_tags

_INSERT = Statement(insert(record_tags))
_THIS = (record_tags.c.number == bindparam("this_number")) & (
    record_tags.c.tag == bindparam("this_tag")
)
_REMOVE = delete(record_tags).where(_THIS)
_KEEP = Statement(
    insert(record_tags).from_select(
        ["number", "tag", "kind", "org"],
        select(
            bindparam("number", type_=Number),
            *(bindparam(name, type_=Text) for name in ("tag", "kind", "org")),
        ).where(~exists().where(_THIS)),
    )
)


def add(connection: Connection, number: int, kind: str, org: str, words: Collection[str]) -> None:
    """Tag a record with words that it does not have."""
    rows = [{"number": number, "tag": tag, "kind": kind, "org": org} for tag in _stored(words)]
    if rows:
        _INSERT.run_many(connection, rows)


def keep(connection: Connection, number: int, kind: str, org: str, words: Collection[str]) -> None:
    """Tag a record with words that it may have already."""
    for tag in _stored(words):
        values = {"number": number, "tag": tag, "kind": kind, "org": org}
        _KEEP.run(connection, {**values, "this_number": number, "this_tag": tag})


def replace(
    connection: Connection,
    number: int,
    kind: str,
    org: str,
    *,
    before: Collection[str],
    after: Collection[str],
) -> None:
    """Have a record's tags follow its spec."""
    old, new = _stored(before), _stored(after)
    for tag in old - new:
        connection.execute(_REMOVE, {"this_number": number, "this_tag": tag})
    keep(connection, number, kind, org, new - old)


def _stored(words: Collection[str]) -> set[str]:
    return {printable(word) for word in words}
