"""Metrics of runs: their series, chunks of points, and how far files of reports were read.

Written out, not taken from ``tables``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _number(name: str, **options: object) -> sa.Column[int]:
    return sa.Column(name, _NUMBER, nullable=False, **options)  # type: ignore[arg-type]


def upgrade() -> None:
    """Apply the step."""
    op.create_table(
        "series",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column(
            "run", _NUMBER, sa.ForeignKey("records.number", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("task", _NAME, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        *(_number(name) for name in ("attempt", "restart", "count")),
        *(sa.Column(name, sa.Double) for name in ("first", "last", "min", "max")),
        *(_number(name) for name in ("last_step", "last_at", "nan", "earlier", "chunks")),
        sqlite_autoincrement=True,
    )
    op.create_index("series_by_run", "series", ["run", "task", "name"], unique=True)
    op.create_table(
        "chunks",
        sa.Column(
            "series",
            _NUMBER,
            sa.ForeignKey("series.number", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=False),
        *(_number(name) for name in ("attempt", "restart", "earlier", "n", "nan")),
        *(_number(name) for name in ("from_step", "to_step")),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("bytes", sa.LargeBinary, nullable=False),
    )
    op.create_index("chunks_by_step", "chunks", ["series", "earlier", "to_step"])
    op.create_table(
        "metric_files",
        sa.Column(
            "run",
            _NUMBER,
            sa.ForeignKey("records.number", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("attempt", _NUMBER, primary_key=True, autoincrement=False),
        sa.Column("task", _NAME, primary_key=True),
        sa.Column("identity", sa.Text, nullable=False),
        *(_number(name) for name in ("position", "refused")),
        sqlite_with_rowid=False,
    )
