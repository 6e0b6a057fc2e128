"""From a time to the numbers of the records that were made then.

Numbers follow the order of commits, and times nearly do: clocks are set back now and then, and
those of two servers differ. By how much they ever did is kept beside the counters, so that bounds
on the time become exact bounds on the number, two steps along an index each.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, bindparam, select

from cloud_ml.state.sql import counters
from cloud_ml.state.sql.tables import Moment, records

_MOMENT = bindparam("moment", type_=Moment)
_MADE = records.c.created_at
_FIRST_FROM = (
    select(records.c.number).where(_MADE >= _MOMENT).order_by(_MADE, records.c.number).limit(1)
)
_LAST_BEFORE = (
    select(records.c.number)
    .where(_MADE < _MOMENT)
    .order_by(_MADE.desc(), records.c.number.desc())
    .limit(1)
)
_ALL = 2**62
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def bounds(connection: Connection, start: datetime | None, end: datetime | None) -> tuple[int, int]:
    """Records made from ``start`` on and before ``end`` have numbers above the first and below
    the second result.
    """
    above, below = -1, _ALL
    if start is None and end is None:
        return above, below
    slack = counters.largest_step_back(connection)
    if start is not None:
        found = connection.execute(_LAST_BEFORE, {"moment": _moved(start, -slack)}).scalar()
        above = above if found is None else found
    if end is not None:
        found = connection.execute(_FIRST_FROM, {"moment": _moved(end, slack)}).scalar()
        below = below if found is None else found
    return above, below


def _moved(moment: datetime, by: timedelta) -> datetime:
    """The time that much later, or the end of all times on that side."""
    try:
        return moment + by
    except OverflowError:
        return _FIRST if by < timedelta(0) else _LAST
