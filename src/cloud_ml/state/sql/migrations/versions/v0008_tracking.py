"""Experiments, runs, and their parameters and tags. Jobs that are there become runs.

Written out, not taken from ``tables``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_MADE = """INSERT INTO runs (number, org, experiment, deleted, name, start, inputs)
SELECT number, org, '0', 0, name, CAST(round((SECONDS) * 1000) AS BIGINT), '[]'
FROM records WHERE kind = 'train_job'"""
_POSTGRESQL = _MADE.replace("SECONDS", "extract(epoch FROM CAST(created_at AS timestamptz))")
_SQLITE = _MADE.replace("SECONDS", "(julianday(created_at) - 2440587.5) * 86400.0")


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, _NUMBER, nullable=False)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _of_record(name: str) -> sa.Column[int]:
    return sa.Column(
        name,
        _NUMBER,
        sa.ForeignKey("records.number", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    )


def upgrade() -> None:
    """Apply the step."""
    op.create_table(
        "experiments",
        sa.Column("org", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", _NAME, nullable=False),
        *(_number(name) for name in ("created", "updated", "deleted")),
        _text("tags"),
        sqlite_with_rowid=False,
    )
    op.create_index("experiments_by_name", "experiments", ["org", "name"], unique=True)
    op.create_table(
        "runs",
        _of_record("number"),
        _text("org"),
        _text("experiment"),
        _number("deleted"),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("state", sa.Text),
        _number("start"),
        sa.Column("end", _NUMBER),
        _text("inputs"),
    )
    op.create_index("runs_by_experiment", "runs", ["org", "experiment", "deleted", "number"])
    op.create_index("runs_by_org", "runs", ["org", "deleted", "number"])
    for table in ("run_params", "run_tags"):
        op.create_table(
            table,
            _of_record("run"),
            sa.Column("key", _NAME, primary_key=True),
            _text("org"),
            sa.Column("head", _NAME, nullable=False),
            sa.Column("value", _NAME, nullable=False),
            sqlite_with_rowid=False,
        )
        op.create_index(f"{table}_by_value", table, ["org", "key", "head", "run"])
    _make_runs_of_jobs()


def _make_runs_of_jobs() -> None:
    """Times are RFC 3339 text in ``records``, and milliseconds in ``runs``."""
    text = _POSTGRESQL if op.get_bind().dialect.name == "postgresql" else _SQLITE
    op.execute(text)
