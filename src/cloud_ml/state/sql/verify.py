"""Looks over a whole database, while it may be in use, and changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from cloud_ml.domain.records import Kind
from cloud_ml.errors import CloudMlError, Conflict, Damaged
from cloud_ml.state.sql import counters, items, migrations, records
from cloud_ml.state.sql import tables as t
from cloud_ml.state.sql.dialects import dialect_of

_PAGE = 500
_RECORDS = (
    select(t.records)
    .where(t.records.c.number > bindparam("after"))
    .order_by(t.records.c.number)
    .limit(_PAGE)
)
_HIGHEST = {
    "a record": (select(func.max(t.records.c.revision)), "revision"),
    "a mark of deletion": (select(func.max(t.deletions.c.revision)), "revision"),
    "an experiment": (select(func.max(t.experiments.c.revision)), "revision"),
    "an event": (select(func.max(t.events.c.id)), "event"),
}
_EVENTS = select(func.count()).select_from(t.events)
_STRAY = (
    select(t.events.c.uid)
    .where(~select(t.records.c.uid).where(t.records.c.uid == t.events.c.uid).exists())
    .limit(1)
)

_KEPT = (
    select(
        t.records.c.org,
        func.sum(t.series.c.count + t.series.c.earlier - t.series.c.removed).label("points"),
    )
    .join(t.series, t.records.c.number == t.series.c.run)
    .group_by(t.records.c.org)
    .subquery()
)
_POINTS = func.coalesce(_KEPT.c.points, 0)
# One statement, so both figures are of one moment.
_WRONG_SUM = (
    select(t.metric_usage.c.org, t.metric_usage.c.points, _POINTS.label("kept"))
    .outerjoin(_KEPT, _KEPT.c.org == t.metric_usage.c.org)
    .where(t.metric_usage.c.points != _POINTS)
    .limit(1)
)
_ITEMS = select(func.count()).select_from(t.status_items)
_STRAY_ITEM = (
    select(t.status_items.c.record)
    .where(
        ~select(t.records.c.number).where(t.records.c.number == t.status_items.c.record).exists()
    )
    .limit(1)
)
_PARENT = t.records.alias()
_ORPHAN = (
    select(t.records.c.kind, t.records.c.uid)
    .where(
        t.records.c.parent_uid.is_not(None),
        ~select(_PARENT.c.uid).where(_PARENT.c.uid == t.records.c.parent_uid).exists(),
    )
    .limit(1)
)


def verify(url: str, kinds: Mapping[str, Kind[Any, Any]]) -> Iterator[str]:
    """Verify one thing after the other; yields what held, in sentences.

    Args:
        url: The database.
        kinds: Every kind of record there may be, by name.

    Raises:
        InvalidRequest: ``url`` names no database of a kind we know.
        Damaged: Something does not hold; says what.
        Conflict: Its schema is not that of this version.
        Unavailable: It does not answer.
    """
    dialect, parsed = dialect_of(url)
    engine = dialect.reader(parsed)
    try:
        with engine.connect() as connection:
            yield from dialect.examine(parsed, connection)
            yield _schema(connection)
            yield _counters(connection)
            yield _documents(connection, kinds)
            yield _items(connection)
            yield _events(connection)
            yield _points(connection)
    finally:
        engine.dispose()


def _schema(connection: Connection) -> str:
    version = migrations.version_of(connection)
    migrations.check_not_newer(version, name="the database")
    if version != migrations.HEAD:
        raise Conflict(
            f"the schema is {version}, this version's is {migrations.HEAD}",
            hint="Run 'cloudml server migrate', or start the server, which does the same.",
        )
    return f"The schema is {version}, that of this version."


def _counters(connection: Connection) -> str:
    """Nothing has a number that was not given out yet: it would be given out again."""
    highest = {
        what: connection.execute(query).scalar() or 0 for what, (query, _) in _HIGHEST.items()
    }
    position = counters.read(connection)  # last: the counters grow meanwhile
    for what, (_, name) in _HIGHEST.items():
        if highest[what] > (given := getattr(position, name)):
            raise Damaged(f"{what} has the number {highest[what]}, but only {given} were given out")
    return f"The counters stand at revision {position.revision} and event {position.event}; nothing is beyond them."


def _documents(connection: Connection, kinds: Mapping[str, Kind[Any, Any]]) -> str:
    by_kind: Counter[str] = Counter()
    after = -1
    while rows := connection.execute(_RECORDS, {"after": after}).all():
        for row in rows:
            kind = kinds.get(row.kind)
            if kind is None:
                raise Damaged(f"record {row.uid} is of the unknown kind {row.kind}")
            try:
                record = records.decode(kind, row)
                if kind.items is not None:
                    items.read_whole(connection, kind, row.uid)
            except CloudMlError as error:
                raise Damaged(error.message, hint=error.hint) from error
            if row.index_value != kind.index_of(record.status):
                raise Damaged(
                    f"{kind.name} {row.uid} is listed as {row.index_value}, which it is not"
                )
            by_kind[kind.name] += 1
        after = rows[-1].number
    if (orphan := connection.execute(_ORPHAN).one_or_none()) is not None:
        raise Damaged(f"{orphan.kind} {orphan.uid} was made for a record that is gone")
    counts = ", ".join(f"{count} {name}" for name, count in sorted(by_kind.items()))
    return f"{by_kind.total()} records ({counts or 'none'}), each of which can be read."


def _items(connection: Connection) -> str:
    stray = connection.execute(_STRAY_ITEM).scalar()
    if stray is not None:
        raise Damaged(f"there are items of record {stray}, but no such record")
    return (
        f"{connection.execute(_ITEMS).scalar_one()} items of lists, each of a record that is there."
    )


def _events(connection: Connection) -> str:
    stray = connection.execute(_STRAY).scalar()
    if stray is not None:
        raise Damaged(f"there are events of {stray}, but no such record")
    return f"{connection.execute(_EVENTS).scalar_one()} events, each of a record that is there."


def _points(connection: Connection) -> str:
    """The sums that quotas go by are those of the series."""
    wrong = connection.execute(_WRONG_SUM).one_or_none()
    if wrong is not None:
        raise Damaged(
            f"{wrong.org} is counted to keep {wrong.points} points of metrics, but keeps {wrong.kept}"
        )
    return "The points of metrics are as many as they are counted to be."
