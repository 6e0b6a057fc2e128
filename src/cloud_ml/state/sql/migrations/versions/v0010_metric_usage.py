"""The points that an organisation keeps are a stored sum, for its quota.

Written out, not taken from ``tables``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the step."""
    op.create_table(
        "metric_usage",
        sa.Column("org", sa.Text, primary_key=True),
        sa.Column("points", _NUMBER, nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("series", sa.Column("removed", _NUMBER, nullable=False, server_default="0"))
    op.execute(
        "INSERT INTO metric_usage (org, points)"
        " SELECT records.org, sum(series.count + series.earlier)"
        " FROM series JOIN records ON records.number = series.run GROUP BY records.org"
    )
