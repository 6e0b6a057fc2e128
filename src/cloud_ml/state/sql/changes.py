"""The feed of changes: living records by their newest revision, and marks of those that are
gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, Table, bindparam, literal, select, union_all

from cloud_ml.state.base import Change
from cloud_ml.state.sql.records import parent_of
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import deletions, records


def _stretch(table: Table) -> Select[Any]:
    gone = literal(int(table is deletions)).label("gone")
    newer = select(
        table.c.revision,
        table.c.kind,
        table.c.uid,
        table.c.org,
        table.c.name,
        table.c.parent_kind,
        table.c.parent_uid,
        gone,
    ).where(table.c.revision > bindparam("after"))
    # Wrapped in a subquery: SQLite allows no ORDER BY and LIMIT in the parts of a UNION.
    return select(newer.order_by(table.c.revision).limit(bindparam("rows")).subquery())


_BOTH = union_all(_stretch(records), _stretch(deletions)).subquery("feed")
FEED = Statement(select(_BOTH).order_by(_BOTH.c.revision).limit(bindparam("rows")))
"""Both tables are walked along their index on the revision; at most two pages are merged."""


def after(connection: Connection, revision: int, *, limit: int) -> Sequence[Change]:
    """What changed after ``revision``, oldest first."""
    rows = FEED.rows(connection, {"after": revision, "rows": limit})
    return tuple(
        Change(
            row.revision,
            row.kind,
            row.uid,
            row.org,
            row.name,
            gone=bool(row.gone),
            parent=parent_of(row),
        )
        for row in rows
    )
