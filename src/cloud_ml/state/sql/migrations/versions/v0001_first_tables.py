"""The first tables.

Written out, not taken from ``tables``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the step."""
    _create_records()
    _create_marks()
    op.execute(sa.text("INSERT INTO counters (id, revision, event) VALUES (1, 0, 0)"))


def _create_records() -> None:
    op.create_table(
        "counters",
        sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True),
        sa.Column("revision", _NUMBER, nullable=False),
        sa.Column("event", _NUMBER, nullable=False),
    )
    op.create_table(
        "records",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("uid", sa.Text, nullable=False, unique=True),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("kind", "org", "name", "owner", "index_value")
        ),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("revision", _NUMBER, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Text, nullable=False),
        sa.Column("delete_requested_at", sa.Text),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("title", "spec", "status")),
    )
    op.create_index("records_by_name", "records", ["kind", "org", "name"], unique=True)
    op.create_index("records_by_revision", "records", ["revision"], unique=True)
    op.create_index("records_by_kind", "records", ["kind", "number"])
    op.create_index("records_by_org", "records", ["kind", "org", "number"])
    op.create_index("records_by_index", "records", ["kind", "index_value", "number"])
    op.create_index("records_by_org_and_index", "records", ["kind", "org", "index_value", "number"])
    op.create_table(
        "events",
        sa.Column(
            "uid", sa.Text, sa.ForeignKey("records.uid", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("at", "type", "reason", "message")),
        sqlite_with_rowid=False,
    )


def _create_marks() -> None:
    op.create_table(
        "deletions",
        sa.Column("revision", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("deleted_at", sa.Text, nullable=False, index=True),
    )
    op.create_table(
        "idempotency_keys",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("org", "kind", "key")),
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("used_at", sa.Text, nullable=False, index=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "once_tokens",
        sa.Column("token", sa.Text, primary_key=True),
        sa.Column("expires_at", sa.Text, nullable=False, index=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("expires_at", sa.Text, nullable=False),
    )
