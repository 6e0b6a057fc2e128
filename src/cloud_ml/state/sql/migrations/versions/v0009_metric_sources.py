"""Points come from event files and logs, too: series and files have a source.

Written out, not taken from ``tables``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_KEPT = "run, attempt, task, identity, position, refused"


def upgrade() -> None:
    """Apply the step."""
    op.add_column("series", sa.Column("source", _NAME, nullable=False, server_default="report"))
    op.drop_index("series_by_run", "series")
    op.create_index("series_by_run", "series", ["run", "task", "name", "source"], unique=True)
    op.rename_table("metric_files", "old_metric_files")
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
        sa.Column("source", _NAME, primary_key=True),
        sa.Column("path", _NAME, primary_key=True),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("position", _NUMBER, nullable=False),
        sa.Column("refused", _NUMBER, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute(
        f"INSERT INTO metric_files ({_KEPT}, source, path, state)"  # noqa: S608
        f" SELECT {_KEPT}, 'report', '', '' FROM old_metric_files"
    )
    op.drop_table("old_metric_files")
