"""Records are found by owner, framework, label and time; marks of deletion say whose they are.

Written out, not taken from ``tables`` or ``domain``: a step means the same forever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MARKED = sa.text("delete_requested_at IS NOT NULL")
_PAGE = 1000


def upgrade() -> None:
    """Apply the step."""
    for name in ("newest_us", "back_us"):
        op.add_column("counters", sa.Column(name, _NUMBER, nullable=False, server_default="0"))
    for name in ("org", "name"):
        op.add_column(
            "deletions", sa.Column(name, sa.Text, nullable=False, server_default=sa.text("''"))
        )
    if op.get_context().dialect.name == "postgresql":
        op.execute(sa.text('ALTER TABLE records ALTER COLUMN name TYPE text COLLATE "C"'))
    op.create_index("records_by_time", "records", ["created_at", "number"])
    op.create_index(
        "records_deleting",
        "records",
        ["kind", "number"],
        sqlite_where=_MARKED,
        postgresql_where=_MARKED,
    )
    op.create_table(
        "record_tags",
        sa.Column(
            "number",
            _NUMBER,
            sa.ForeignKey("records.number", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("tag", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("org", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    _fill()
    op.create_index("record_tags_by_tag", "record_tags", ["kind", "tag", "org", "number"])


def _fill() -> None:
    connection = op.get_bind()
    tags = sa.table("record_tags", *(sa.column(name) for name in ("number", "tag", "kind", "org")))
    newest = back = timedelta(0)
    for row in _records(connection):
        rows = [
            {"number": row.number, "tag": tag, "kind": row.kind, "org": row.org}
            for tag in _tags(row)
        ]
        connection.execute(sa.insert(tags), rows)
        made = datetime.fromisoformat(row.created_at) - _EPOCH
        back, newest = max(back, newest - made), max(newest, made)
    values = {
        "newest": newest // timedelta(microseconds=1),
        "back": back // timedelta(microseconds=1),
    }
    connection.execute(sa.text("UPDATE counters SET newest_us = :newest, back_us = :back"), values)


def _records(connection: sa.Connection) -> Iterator[Any]:
    after = -1
    read = sa.text(
        "SELECT number, kind, org, owner, created_at, spec, status FROM records"
        " WHERE number > :after ORDER BY number LIMIT :page"
    )
    while rows := connection.execute(read, {"after": after, "page": _PAGE}).all():
        yield from rows
        after = rows[-1].number


def _tags(row: Any) -> set[str]:
    found = {f"owner={row.owner}"}
    if row.kind == "train_job":
        job = json.loads(row.spec).get("submitted") or {}
        frameworks = {
            job.get("framework"),
            str(json.loads(row.status).get("runtime") or "").partition(" ")[0],
        }
        found |= {f"framework={name}" for name in frameworks if name}
        found |= {
            f"label:{quote(name, safe='')}={value}"
            for name, value in (job.get("labels") or {}).items()
        }
    return {
        tag.encode("utf-8", "replace").decode("utf-8").replace("\x00", "\ufffd") for tag in found
    }
