"""Rows of ``series`` and ``chunks``, read and written within a transaction."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from cloud_ml.domain.metrics import envelopes
from cloud_ml.domain.metrics.reading import ChunkSummary
from cloud_ml.domain.metrics.series import Chunk, ChunkLine, Series, TaskStart
from cloud_ml.state.metrics import RunWithPoints
from cloud_ml.state.sql.statements import Row, Statement
from cloud_ml.state.sql.tables import chunks, metric_usage, records, series

_S, _C, _U = series.c, chunks.c, metric_usage.c
_VALUES = tuple(column.name for column in _S if column.name not in ("number", "run"))
_LINE = (
    _C.number, _C.attempt, _C.restart, _C.earlier, _C.n, _C.nan, _C.from_step, _C.to_step,
    _C.envelope,
)  # fmt: skip
_THIS = (_C.series == bindparam("its_series")) & (_C.number == bindparam("its_number"))
_NOT_EARLIER = (_C.series == bindparam("its_series")) & (_C.earlier == 0)

_FIND = Statement(
    select(series).where(
        _S.run == bindparam("its_run"),
        _S.task == bindparam("its_task"),
        _S.name == bindparam("its_name"),
        _S.source == bindparam("its_source"),
    )
)
_ADD = Statement(
    insert(series)
    .values({name: bindparam(name) for name in ("run", *_VALUES)})
    .returning(_S.number)
)
_UPDATE = Statement(
    update(series)
    .where(_S.number == bindparam("its_number"))
    .values({name: bindparam(f"new_{name}") for name in _VALUES})
)
_SIZE = Statement(
    select(
        func.count().label("series"),
        func.coalesce(func.sum(_S.count + _S.earlier - _S.removed), 0).label("points"),
    ).where(_S.run == bindparam("its_run"))
)
_ORG_POINTS = Statement(select(_U.points).where(_U.org == bindparam("its_org")))
_COUNT_POINTS = Statement(
    update(metric_usage)
    .where(_U.org == bindparam("its_org"))
    .values(points=_U.points + bindparam("more"))
    .returning(_U.points)
)
_BEGIN_COUNT = Statement(insert(metric_usage))
_KEPT_POINTS = Statement(
    select(records.c.org, func.sum(_S.count + _S.earlier - _S.removed).label("points"))
    .join(records, records.c.number == _S.run)
    .where(records.c.uid == bindparam("this"), records.c.kind == bindparam("its_kind"))
    .group_by(records.c.org)
)
_PAGE = (
    select(_S.run)
    .where(_S.run > bindparam("after"), _S.removed < _S.count + _S.earlier)
    .group_by(_S.run)
    .order_by(_S.run)
    .limit(bindparam("most"))
    .subquery()
)
_WITH_POINTS = (
    select(records.c.number, records.c.uid, records.c.kind)
    .join(_PAGE, _PAGE.c.run == records.c.number)
    .order_by(records.c.number)
)
_CHUNKS_OF_RUN = Statement(
    select(_C.series, _C.number, _C.n, records.c.org)
    .join(series, _S.number == _C.series)
    .join(records, records.c.number == _S.run)
    .where(records.c.uid == bindparam("this"))
    .limit(bindparam("most"))
)
_REMOVE_CHUNK = Statement(delete(chunks).where(_THIS))
_NOTE_REMOVED = Statement(
    update(series)
    .where(_S.number == bindparam("its_number"))
    .values(removed=_S.removed + bindparam("more"))
)
_CHUNK = Statement(select(*_LINE, _C.bytes).where(_THIS))
_PUT = Statement(insert(chunks))
_REPLACE = Statement(
    update(chunks)
    .where(_THIS)
    .values(
        {
            column.name: bindparam(f"new_{column.name}")
            for column in _C
            if column.name not in ("series", "number")
        }
    )
    .returning(_C.number)
)
_REACHING = Statement(
    select(_C.number).where(_NOT_EARLIER, _C.to_step >= bindparam("step")).order_by(_C.number)
)
_LINES = Statement(select(*_LINE).where(_NOT_EARLIER).order_by(_C.number))
_LINES_BETWEEN = Statement(
    select(_C.number, _C.n, _C.from_step, _C.to_step, _C.envelope.label("packed"))
    .where(
        _C.series == bindparam("its_series"),
        _C.earlier == bindparam("whether_earlier"),
        _C.to_step >= bindparam("low"),
        _C.from_step <= bindparam("high"),
    )
    .order_by(_C.number)
)


class SqlSeriesRows:
    """See ``SeriesRows``. ``run`` is the number of the run's record, ``org`` whose it is."""

    def __init__(self, connection: Connection, run: int, org: str) -> None:
        self._connection = connection
        self._run = run
        self._org = org

    def find(self, task: str, name: str, source: str) -> Series | None:
        """See ``SeriesRows.find``."""
        values = {"its_run": self._run, "its_task": task, "its_name": name}
        values["its_source"] = source
        row = _FIND.one_or_none(self._connection, values)
        return None if row is None else series_of(row)

    def add(self, series: Series) -> Series:
        """See ``SeriesRows.add``."""
        row = _ADD.one(self._connection, {"run": self._run, **_values(series)})
        return replace(series, number=row.number)

    def update(self, series: Series) -> None:
        """See ``SeriesRows.update``."""
        values = {f"new_{name}": value for name, value in _values(series).items()}
        _UPDATE.run(self._connection, {"its_number": series.number, **values})

    def size(self) -> tuple[int, int]:
        """See ``SeriesRows.size``."""
        row = _SIZE.one(self._connection, {"its_run": self._run})
        return row.series, int(row.points)

    def points_of_org(self) -> int:
        """See ``SeriesRows.points_of_org``."""
        return points_of_org(self._connection, self._org)

    def count_points(self, more: int) -> None:
        """See ``SeriesRows.count_points``."""
        count_points(self._connection, self._org, more)

    def chunk(self, series: int, number: int) -> Chunk | None:
        """See ``SeriesRows.chunk``."""
        values = {"its_series": series, "its_number": number}
        row = _CHUNK.one_or_none(self._connection, values)
        return None if row is None else Chunk(_line(row), bytes(row.bytes))

    def put(self, series: int, chunk: Chunk) -> None:
        """See ``SeriesRows.put``."""
        line = chunk.line
        content = {
            "attempt": line.start.attempt,
            "restart": line.start.restart,
            "earlier": int(line.earlier),
            "n": line.n,
            "nan": line.nan,
            "from_step": line.from_step,
            "to_step": line.to_step,
            "envelope": envelopes.pack(line.envelope),
            "bytes": chunk.points,
        }
        this = {"its_series": series, "its_number": line.number}
        new = {f"new_{name}": value for name, value in content.items()}
        # Try to replace first: usually the last chunk of a series has grown.
        if not _REPLACE.rows(self._connection, {**this, **new}):
            _PUT.run(self._connection, {"series": series, "number": line.number, **content})

    def reaching(self, series: int, step: int) -> Sequence[int]:
        """See ``SeriesRows.reaching``."""
        rows = _REACHING.rows(self._connection, {"its_series": series, "step": step})
        return [row.number for row in rows]

    def lines(self, series: int) -> Sequence[ChunkLine]:
        """See ``SeriesRows.lines``."""
        return [_line(row) for row in _LINES.rows(self._connection, {"its_series": series})]


def points_of_org(connection: Connection, org: str) -> int:
    """How many points the runs of an organisation keep."""
    row = _ORG_POINTS.one_or_none(connection, {"its_org": org})
    return 0 if row is None else row.points


def count_points(connection: Connection, org: str, more: int) -> None:
    """Add so many to the points that an organisation keeps."""
    if not _COUNT_POINTS.rows(connection, {"its_org": org, "more": more}):
        _BEGIN_COUNT.run(connection, {"org": org, "points": more})


def release_points(connection: Connection, kind: str, uid: str) -> None:
    """Take the points of a record from those that its organisation keeps. Call it in the transaction
    that removes the record, before that.
    """
    kept = _KEPT_POINTS.one_or_none(connection, {"this": uid, "its_kind": kind})
    if kept is not None and kept.points:
        count_points(connection, kept.org, -int(kept.points))


def runs_with_points(connection: Connection, after: int, most: int) -> Sequence[RunWithPoints]:
    """See ``MetricStore.runs_with_points``."""
    found = connection.execute(_WITH_POINTS, {"after": after, "most": most})
    return [RunWithPoints(row.number, row.uid, row.kind) for row in found]


def remove_points(connection: Connection, uid: str, most: int) -> int:
    """See ``MetricStore.remove_points``."""
    found = _CHUNKS_OF_RUN.rows(connection, {"this": uid, "most": most})
    removed: Counter[int] = Counter()
    for row in found:
        _REMOVE_CHUNK.run(connection, {"its_series": row.series, "its_number": row.number})
        removed[row.series] += row.n
    for number, more in removed.items():
        _NOTE_REMOVED.run(connection, {"its_number": number, "more": more})
    if found:
        count_points(connection, found[0].org, -removed.total())
    return removed.total()


def lines_between(
    connection: Connection, number: int, low: int, high: int, *, earlier: bool
) -> Sequence[ChunkSummary]:
    """The chunks of a series with steps from ``low`` to ``high``, without their points."""
    values = {"its_series": number, "whether_earlier": int(earlier), "low": low, "high": high}
    return _LINES_BETWEEN.rows(connection, values)


def series_of(row: Row) -> Series:
    """A row of ``series``."""
    return Series(
        number=row.number,
        task=row.task,
        name=row.name,
        start=TaskStart(row.attempt, row.restart),
        count=row.count,
        first=_number(row.first),
        last=_number(row.last),
        min=row.min,
        max=row.max,
        last_step=row.last_step,
        last_at=row.last_at,
        nan=row.nan,
        earlier=row.earlier,
        chunks=row.chunks,
        source=row.source,
        removed=row.removed,
    )


def _values(series: Series) -> Mapping[str, Any]:
    return {
        "task": series.task,
        "name": series.name,
        "attempt": series.start.attempt,
        "restart": series.start.restart,
        "count": series.count,
        "first": _nullable(series.first),
        "last": _nullable(series.last),
        "min": series.min,
        "max": series.max,
        "last_step": series.last_step,
        "last_at": series.last_at,
        "nan": series.nan,
        "earlier": series.earlier,
        "chunks": series.chunks,
        "source": series.source,
        "removed": series.removed,
    }


def _nullable(value: float) -> float | None:
    """SQLite takes what is no number for NULL; so do we, on every database."""
    return None if math.isnan(value) else value


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _line(row: Row) -> ChunkLine:
    return ChunkLine(
        number=row.number,
        start=TaskStart(row.attempt, row.restart),
        earlier=bool(row.earlier),
        n=row.n,
        nan=row.nan,
        from_step=row.from_step,
        to_step=row.to_step,
        envelope=tuple(envelopes.unpack(bytes(row.envelope))),
    )
