"""Specs of train jobs and replicas hold a workload.

Stored specs stay as they are: they are brought into the new form when they are read. The step keeps
a server of an earlier version, which cannot read the new form, from opening the database.
"""

from __future__ import annotations

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Apply the step, which changes no table."""
