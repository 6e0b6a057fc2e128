"""Tags of event files with histograms, images, audio and texts.

Written out, not taken from ``tables``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Apply the step."""
    op.create_table(
        "summary_tags",
        sa.Column(
            "run",
            _NUMBER,
            sa.ForeignKey("records.number", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("kind", _NAME, primary_key=True),
        sa.Column("count", _NUMBER, nullable=False),
        sa.Column("last_step", _NUMBER, nullable=False),
        sa.Column("last_at", _NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
