"""The one row all writers pass through: numbers grow in the order of commits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, case, exists, select, update

from cloud_ml.errors import Damaged
from cloud_ml.state.base import Fence
from cloud_ml.state.sql.leases import check_fence
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import counters, leases

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = counters.c.id == 1
_NEW_NUMBERS = {
    "revision": counters.c.revision + bindparam("revisions"),
    "event": counters.c.event + bindparam("events"),
}
_NEW_TIME = {
    "newest_us": case(
        (counters.c.newest_us < bindparam("now_us"), bindparam("now_us")),
        else_=counters.c.newest_us,
    ),
    "back_us": case(
        (
            counters.c.newest_us - bindparam("now_us") > counters.c.back_us,
            counters.c.newest_us - bindparam("now_us"),
        ),
        else_=counters.c.back_us,
    ),
}
_NUMBERS = (counters.c.revision, counters.c.event)
_ADVANCE = Statement(update(counters).where(_FIRST).values(_NEW_NUMBERS).returning(*_NUMBERS))
_ADVANCE_AND_NOTE = Statement(
    update(counters).where(_FIRST).values({**_NEW_NUMBERS, **_NEW_TIME}).returning(*_NUMBERS)
)
_ADVANCE_WITHIN = Statement(
    update(counters)
    .where(
        _FIRST,
        exists().where(
            leases.c.name == bindparam("its_lease"), leases.c.epoch == bindparam("its_epoch")
        ),
    )
    .values(_NEW_NUMBERS)
    .returning(*_NUMBERS)
)
"""The same while the lease is at its epoch: one statement for two that each commit of a status has."""
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


def advance_within(connection: Connection, fence: Fence | None, *, events: int) -> Position:
    """Take one revision and so many numbers of events, unless the lease of ``fence`` has passed on.

    Raises:
        FenceLost: It has.
    """
    if fence is None:
        return advance(connection, revisions=1, events=events)
    lease = {"its_lease": fence.name, "its_epoch": fence.epoch}
    row = _ADVANCE_WITHIN.one_or_none(connection, {"revisions": 1, "events": events, **lease})
    if row is None:
        check_fence(connection, fence)
        return advance(connection, revisions=1, events=events)  # which says what is wrong
    return Position(row.revision, row.event)


def advance_and_note(connection: Connection, now: datetime, *, events: int) -> Position:
    """Take one revision and so many numbers of events, and note the time at which a record is
    made; see ``times``.
    """
    now_us = (now - _EPOCH) // timedelta(microseconds=1)
    row = _ADVANCE_AND_NOTE.one(connection, {"revisions": 1, "events": events, "now_us": now_us})
    return Position(row.revision, row.event)


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
