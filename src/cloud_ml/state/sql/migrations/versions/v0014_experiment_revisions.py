"""Experiments have revisions, by which their changes are followed.

An experiment that is there gets its first one when it changes. Written out, not taken from
``tables``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Apply the step."""
    op.add_column("experiments", sa.Column("revision", _NUMBER, nullable=False, server_default="0"))
    op.create_index("experiments_by_revision", "experiments", ["revision"])
