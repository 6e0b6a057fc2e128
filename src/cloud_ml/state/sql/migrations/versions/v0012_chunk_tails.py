"""The newest points of a chunk may stand in its envelope only.

No table changes. A program of an earlier step would lose these points when it writes the chunk
again, so it must not open the database.
"""

from __future__ import annotations

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Apply the step."""
