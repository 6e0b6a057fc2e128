"""The audit log.

Written out, not taken from ``tables``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_WORDS = ("org", "user", "key", "address", "request", "operation", "target", "outcome")


def upgrade() -> None:
    """Apply the step."""
    op.create_table(
        "audit",
        sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in _WORDS),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_by_time", "audit", ["at"])
    op.create_index("audit_by_org", "audit", ["org", "id"])
    op.create_index("audit_by_target", "audit", ["target", "id"])
