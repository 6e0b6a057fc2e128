"""Records name the record for which they were made: a replica names its service.

Until now a tag told so. What has a parent is found by the tag ``parent=<uid>``, whatever its kind.
Written out, not taken from ``tables`` or ``domain``: a step means the same forever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_OLD_TAG = "label:cloudml-service="
_CHILDREN = sa.text("parent_uid IS NOT NULL")


def upgrade() -> None:
    """Apply the step."""
    for table in ("records", "deletions"):
        for name in ("parent_kind", "parent_uid"):
            op.add_column(table, sa.Column(name, sa.Text))
    _fill()
    op.create_index(
        "records_by_parent",
        "records",
        ["parent_uid"],
        sqlite_where=_CHILDREN,
        postgresql_where=_CHILDREN,
    )


def _fill() -> None:
    """Replicas know their service by a tag. One whose service is gone stays without a parent."""
    connection = op.get_bind()
    values = {"start": len(_OLD_TAG) + 1, "pattern": f"{_OLD_TAG}%"}
    connection.execute(
        sa.text(
            "UPDATE records SET parent_kind = 'model_service', parent_uid = ("
            " SELECT substr(tag, :start) FROM record_tags"
            " WHERE record_tags.number = records.number AND tag LIKE :pattern)"
            " WHERE kind = 'replica' AND EXISTS ("
            " SELECT 1 FROM record_tags JOIN records AS service"
            " ON service.kind = 'model_service' AND service.uid = substr(tag, :start)"
            " WHERE record_tags.number = records.number AND tag LIKE :pattern)"
        ),
        values,
    )
    connection.execute(
        sa.text(
            "UPDATE record_tags SET tag = 'parent=' || substr(tag, :start)"
            " WHERE kind = 'replica' AND tag LIKE :pattern"
        ),
        values,
    )
