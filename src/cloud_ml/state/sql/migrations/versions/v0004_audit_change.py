"""Entries of the audit log say from what to what.

Written out, not taken from ``tables``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Apply the step."""
    op.add_column(
        "audit", sa.Column("change", sa.Text, nullable=False, server_default=sa.text("''"))
    )
