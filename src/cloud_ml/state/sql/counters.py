"""The one row all writers pass through: numbers grow in the order of commits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, case, select, update

from cloud_ml.errors import Damaged
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import counters

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ADVANCE = Statement(
    update(counters)
    .where(counters.c.id == 1)
    .values(
        revision=counters.c.revision + bindparam("revisions"),
        event=counters.c.event + bindparam("events"),
    )
    .returning(counters.c.revision, counters.c.event)
)
_NOTE_TIME = Statement(
    update(counters)
    .where(counters.c.id == 1)
    .values(
        newest_us=case(
            (counters.c.newest_us < bindparam("now_us"), bindparam("now_us")),
            else_=counters.c.newest_us,
        ),
        back_us=case(
            (
                counters.c.newest_us - bindparam("now_us") > counters.c.back_us,
                counters.c.newest_us - bindparam("now_us"),
            ),
            else_=counters.c.back_us,
        ),
    )
)
_BACK = select(counters.c.back_us).where(counters.c.id == 1)
_REVISION = Statement(select(counters.c.revision).where(counters.c.id == 1))
_READ = select(counters.c.revision, counters.c.event).where(counters.c.id == 1)


class Position(NamedTuple):
    """The newest revision and the newest event id."""

    revision: int
    event: int


def advance(connection: Connection, *, revisions: int = 0, events: int = 0) -> Position:
    """Take that many numbers; returns the last ones taken."""
    row = _ADVANCE.one(connection, {"revisions": revisions, "events": events})
    return Position(row.revision, row.event)


def note_time(connection: Connection, now: datetime) -> None:
    """Take note of the time at which a record is made; see ``times``."""
    _NOTE_TIME.run(connection, {"now_us": (now - _EPOCH) // timedelta(microseconds=1)})


def largest_step_back(connection: Connection) -> timedelta:
    """No record was made so long before another one that has a smaller number, or longer."""
    return timedelta(microseconds=connection.execute(_BACK).scalar_one() + 1)


def revision(connection: Connection) -> int:
    """The newest revision."""
    newest: int = _REVISION.one(connection, {})[0]
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
