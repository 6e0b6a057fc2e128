"""Pages of records. Every page is one walk along an index, whatever the size of the table.

Neither OFFSET nor COUNT: the cursor is the number of the last record of the page before. With
several index values, each value's newest rows are taken from its own stretch of the index, and
only those few are merged.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select, union_all

from cloud_ml.domain.records import Key, Kind, Summary
from cloud_ml.state.base import Page
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import record_tags, records

_NOT_SHOWN = ("spec", "status", "revision", "generation", "parent_kind", "parent_uid")
NARROW = [column for column in records.c if column.name not in _NOT_SHOWN]
_LINE = select(*NARROW)
_NEWEST_FIRST = records.c.number.desc()
_COUNTS = (
    select(records.c.index_value, func.count().label("records"))
    .where(records.c.kind == bindparam("its_kind"))
    .group_by(records.c.index_value)
)
_BEYOND_ALL = 2**62


def page(
    connection: Connection,
    kind: Kind[Any, Any],
    *,
    org: str | None,
    indexes: Collection[str] | None,
    after: int | None,
    limit: int,
) -> Page[Summary]:
    """Read one page, newest first."""
    if indexes is not None and not indexes:
        return Page((), None)
    statement, parameters = query(kind, org=org, indexes=indexes, after=after, limit=limit)
    rows = statement.rows(connection, parameters)
    shown = tuple(summary_of(row) for row in rows[:limit])
    return Page(shown, shown[-1].number if len(rows) > limit else None)


def counts(connection: Connection, kind: Kind[Any, Any]) -> Mapping[str, int]:
    """How many records have each index value."""
    rows = connection.execute(_COUNTS, {"its_kind": kind.name})
    return {row.index_value: row.records for row in rows}


def count(
    connection: Connection, kind: Kind[Any, Any], *, org: str, most: int, tag: str | None = None
) -> int:
    """How many records an organisation has, counted up to ``most``; with ``tag``, those that
    have it.
    """
    table = records if tag is None else record_tags
    query = select(table.c.number).where(table.c.kind == kind.name, table.c.org == org)
    if tag is not None:
        query = query.where(record_tags.c.tag == tag)
    found = query.limit(most).subquery()
    return int(connection.execute(select(func.count()).select_from(found)).scalar_one())


def query(
    kind: Kind[Any, Any],
    *,
    org: str | None,
    indexes: Collection[str] | None,
    after: int | None,
    limit: int,
) -> tuple[Statement, dict[str, Any]]:
    """The statement of a page and its parameters; one row more than the page tells whether it is
    the last.
    """
    values = None if indexes is None else sorted(set(indexes))
    parameters: dict[str, Any] = {
        "its_kind": kind.name,
        "below": _BEYOND_ALL if after is None else after,
        "rows": limit + 1,
    }
    if org is not None:
        parameters["its_org"] = org
    parameters |= {f"value_{i}": value for i, value in enumerate(values or ())}
    return _statement(
        within_org=org is not None, values=None if values is None else len(values)
    ), parameters


@functools.cache
def _statement(*, within_org: bool, values: int | None) -> Statement:
    """Of the handful that there are, each is put together once: that takes longer than reading a
    page.
    """
    conditions = [records.c.kind == bindparam("its_kind"), records.c.number < bindparam("below")]
    if within_org:
        conditions.append(records.c.org == bindparam("its_org"))
    if values is None:
        return Statement(_stretch(conditions))
    return Statement(
        _merged(
            [
                _stretch([*conditions, records.c.index_value == bindparam(f"value_{i}")])
                for i in range(values)
            ]
        )
    )


def _stretch(conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    return _LINE.where(*conditions).order_by(_NEWEST_FIRST).limit(bindparam("rows"))


def _merged(stretches: Sequence[Select[Any]]) -> Any:
    if len(stretches) == 1:
        return stretches[0]
    parts = [select(stretch.subquery(f"stretch_{i}")) for i, stretch in enumerate(stretches)]
    together = union_all(*parts).subquery("together")
    return select(together).order_by(together.c.number.desc()).limit(bindparam("rows"))


def summary_of(row: Any) -> Summary:
    """A row of the columns ``NARROW``, in their order."""
    number, uid, kind, org, name, owner, index, created, updated, deleting, title = row
    return Summary(
        key=Key(kind, org, name, uid),
        owner=owner,
        number=number,
        index=index,
        created_at=created,
        updated_at=updated,
        deleting=deleting is not None,
        title=title,
    )
