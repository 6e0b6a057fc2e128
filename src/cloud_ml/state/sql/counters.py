"""The one row all writers pass through: numbers grow in the order of commits."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select, update

from cloud_ml.errors import Damaged
from cloud_ml.state.sql.tables import counters

_ADVANCE = (
    update(counters)
    .where(counters.c.id == 1)
    .values(
        revision=counters.c.revision + bindparam("revisions"),
        event=counters.c.event + bindparam("events"),
    )
    .returning(counters.c.revision, counters.c.event)
)
_REVISION = select(counters.c.revision).where(counters.c.id == 1)
_READ = select(counters.c.revision, counters.c.event).where(counters.c.id == 1)


class Position(NamedTuple):
    """The newest revision and the newest event id."""

    revision: int
    event: int


def advance(connection: Connection, *, revisions: int = 0, events: int = 0) -> Position:
    """Take that many numbers; returns the last ones taken."""
    row = connection.execute(_ADVANCE, {"revisions": revisions, "events": events}).one()
    return Position(row.revision, row.event)


def revision(connection: Connection) -> int:
    """The newest revision."""
    newest: int = connection.execute(_REVISION).scalar_one()
    return newest


def read(connection: Connection) -> Position:
    """Both, as they stand.

    Raises:
        Damaged: The row is gone.
    """
    row = connection.execute(_READ).one_or_none()
    if row is None:
        raise Damaged("the row of counters is gone")
    return Position(row.revision, row.event)
