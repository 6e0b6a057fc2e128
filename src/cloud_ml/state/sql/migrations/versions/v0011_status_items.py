"""The trials of studies, and the values that they reported, are rows of their own.

Written out, not taken from ``tables``: a step means the same forever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ITEMS = -1
_AT_ONCE = 1000
_STUDIES = sa.text("SELECT number FROM records WHERE kind = 'study'")
_STUDY = sa.text("SELECT revision, status FROM records WHERE number = :number")
_SHORTEN = sa.text("UPDATE records SET status = :status WHERE number = :number")


def upgrade() -> None:
    """Apply the step."""
    table = op.create_table(
        "status_items",
        sa.Column(
            "record",
            _NUMBER,
            sa.ForeignKey("records.number", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("list", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("position", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("revision", _NUMBER, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("status_items_by_revision", "status_items", ["record", "revision"])
    connection = op.get_bind()
    for number in connection.execute(_STUDIES).scalars().all():
        row = connection.execute(_STUDY, {"number": number}).one()
        status = json.loads(row.status)
        rows = list(_rows(status.get("trials") or []))
        for at in range(0, len(rows), _AT_ONCE):
            some = rows[at : at + _AT_ONCE]
            connection.execute(
                sa.insert(table),
                [{"record": number, "revision": row.revision, **each} for each in some],
            )
        status["trials"] = []
        connection.execute(_SHORTEN, {"number": number, "status": _text(status)})


def _rows(trials: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, trial in enumerate(trials):
        points = trial.get("points") or []
        yield {"list": _ITEMS, "position": number, "document": _text({**trial, "points": []})}
        for position, point in enumerate(points):
            yield {"list": number, "position": position, "document": _text(point)}


def _text(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))
