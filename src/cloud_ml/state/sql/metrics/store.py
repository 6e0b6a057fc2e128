"""``SqlMetricStore``: the contract of ``state.metrics`` on a SQL database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import Connection, bindparam, insert, select, update

from cloud_ml.domain.metrics import chunks as codec
from cloud_ml.domain.metrics import envelopes
from cloud_ml.domain.metrics import series as growing
from cloud_ml.domain.metrics.points import Point
from cloud_ml.domain.metrics.reading import select_points, to_decode
from cloud_ml.domain.metrics.reports import Value
from cloud_ml.domain.metrics.series import MetricLimits, Series
from cloud_ml.domain.metrics.summary_tags import SummaryTag, add_tags
from cloud_ml.state import rules
from cloud_ml.state.metrics import (
    NOT_READ,
    Appended,
    FilePosition,
    MetricStore,
    PointRange,
    ReportFile,
    RunWithPoints,
)
from cloud_ml.state.sql.metrics import rows
from cloud_ml.state.sql.metrics.tag_rows import SqlTagRows, tags_of_run
from cloud_ml.state.sql.statements import Row, Statement
from cloud_ml.state.sql.tables import chunks, metric_files, records, series
from cloud_ml.state.sql.writer import Writer

_TOGETHER = 200
"""Chunks that one statement reads."""
_F = metric_files.c
_THIS_FILE = (
    (_F.run == bindparam("its_run"))
    & (_F.attempt == bindparam("its_attempt"))
    & (_F.task == bindparam("its_task"))
    & (_F.source == bindparam("its_source"))
    & (_F.path == bindparam("its_path"))
)
_RUN = Statement(select(records.c.number, records.c.org).where(records.c.uid == bindparam("this")))
_FILE = Statement(select(metric_files).where(_THIS_FILE))
_NEW_FILE = Statement(insert(metric_files))
_MOVE = Statement(
    update(metric_files)
    .where(_THIS_FILE)
    .values(
        {name: bindparam(f"new_{name}") for name in ("identity", "position", "state", "refused")}
    )
)
_FILES = Statement(
    select(metric_files).join(records, records.c.number == _F.run).where(
        records.c.uid == bindparam("this")
    )
)  # fmt: skip
_SERIES = (
    select(series, records.c.uid)
    .join(records, records.c.number == series.c.run)
    .where(records.c.uid.in_(bindparam("these", expanding=True)))
    .order_by(series.c.task, series.c.name, series.c.source)
)
_NAMED = _SERIES.where(series.c.name.in_(bindparam("names", expanding=True)))
_POINTS = (chunks.c.number, chunks.c.n, chunks.c.envelope, chunks.c.bytes)
_CHUNKS = (
    select(*_POINTS)
    .where(
        chunks.c.series == bindparam("its_series"),
        chunks.c.number >= bindparam("first"),
        chunks.c.earlier == 0,
    )
    .order_by(chunks.c.number)
    .limit(bindparam("most"))
)
_BYTES = select(*_POINTS).where(
    chunks.c.series == bindparam("its_series"),
    chunks.c.number.in_(bindparam("these", expanding=True)),
)
Reading = Callable[[], AbstractContextManager[Connection]]


class SqlMetricStore(MetricStore):
    """See ``MetricStore``.

    Args:
        writer: The one writer of the database.
        reading: Lends a connection that reads.
    """

    def __init__(self, writer: Writer, reading: Reading) -> None:
        self._writer = writer
        self._reading = reading

    def positions(self, run: str) -> Mapping[ReportFile, FilePosition]:
        """See ``MetricStore.positions``."""
        if not rules.is_storable(run):
            return {}
        with self._reading() as connection:
            found = _FILES.rows(connection, {"this": run})
        return {
            ReportFile(row.attempt, row.task, row.source, row.path): _position(row) for row in found
        }

    def append(
        self,
        run: str,
        file: ReportFile,
        values: Sequence[Value],
        *,
        before: FilePosition,
        after: FilePosition,
        limits: MetricLimits,
        tags: Sequence[SummaryTag] = (),
    ) -> Appended:
        """See ``MetricStore.append``."""

        def work(connection: Connection) -> Appended:
            found = _RUN.one_or_none(connection, {"this": run})
            if found is None:
                raise rules.no_run(run)
            key = {"run": found.number, "attempt": file.attempt, "task": file.task}
            key |= {"source": file.source, "path": file.path}
            this = {f"its_{name}": value for name, value in key.items()}
            row = _FILE.one_or_none(connection, this)
            at = NOT_READ if row is None else _position(row)
            # Another collector has read on from here, so these values are already stored.
            if at != before:
                raise rules.read_already(run, file.task)
            kept = rows.SqlSeriesRows(connection, found.number, found.org)
            refused = growing.append(
                kept, file.task, file.attempt, values, limits, source=file.source
            )
            if tags:
                refused += add_tags(SqlTagRows(connection, found.number), tags, limits.series)
            refused_before = row is not None and bool(row.refused)
            # The position is written in the same transaction as the values, so a crash cannot
            # separate them.
            now = {"identity": after.identity, "position": after.offset, "state": after.state}
            now["refused"] = int(refused_before or bool(refused))
            if row is None:
                _NEW_FILE.run(connection, {**key, **now})
            else:
                _MOVE.run(connection, {**this, **{f"new_{name}": now[name] for name in now}})
            return Appended(refused, bool(refused) and not refused_before)

        return self._writer.run(work, wake=False)

    def runs_with_points(self, after: int, most: int) -> Sequence[RunWithPoints]:
        """See ``MetricStore.runs_with_points``."""
        with self._reading() as connection:
            return rows.runs_with_points(connection, after, most)

    def remove_points(self, run: str, most: int) -> int:
        """See ``MetricStore.remove_points``."""
        if not rules.is_storable(run):
            return 0

        def work(connection: Connection) -> int:
            return rows.remove_points(connection, run, most)

        return self._writer.run(work, wake=False)

    def points_of_org(self, org: str) -> int:
        """See ``MetricStore.points_of_org``."""
        with self._reading() as connection:
            return rows.points_of_org(connection, org)

    def series(self, run: str) -> Sequence[Series]:
        """See ``MetricStore.series``."""
        return self.series_of([run]).get(run, ())

    def tags(self, run: str) -> Sequence[SummaryTag]:
        """See ``MetricStore.tags``."""
        if not rules.is_storable(run):
            return ()
        with self._reading() as connection:
            return tags_of_run(connection, run)

    def series_of(
        self, runs: Collection[str], names: Collection[str] | None = None
    ) -> Mapping[str, Sequence[Series]]:
        """See ``MetricStore.series_of``."""
        these = [run for run in runs if rules.is_storable(run)]
        storable_names = (
            None if names is None else [name for name in names if rules.is_storable(name)]
        )
        query = _SERIES if storable_names is None else _NAMED
        with self._reading() as connection:
            lines = connection.execute(query, {"these": these, "names": storable_names or []}).all()
        found: dict[str, list[Series]] = {}
        for row in lines:
            found.setdefault(row.uid, []).append(rows.series_of(row))
        return found

    def points(self, series: int, point_range: PointRange) -> Sequence[Point]:
        """See ``MetricStore.points``."""
        low, high, most = point_range.low, point_range.high, point_range.most
        with self._reading() as connection:
            lines = rows.lines_between(connection, series, low, high, earlier=point_range.earlier)
            needed = sorted(to_decode(lines, low, high, most))
            whole = []
            for begin in range(0, len(needed), _TOGETHER):
                these = {"its_series": series, "these": needed[begin : begin + _TOGETHER]}
                found = connection.execute(_BYTES, these)
                whole += [(row.number, _points(row)) for row in found]
        return select_points(lines, whole, low, high, most)

    def chunk_points(
        self, series: int, first: int, most: int
    ) -> Sequence[tuple[int, Sequence[Point]]]:
        """See ``MetricStore.chunk_points``."""
        these = {"its_series": series, "first": first, "most": most}
        with self._reading() as connection:
            found = connection.execute(_CHUNKS, these)
            return [(row.number, _points(row)) for row in found]


def _points(row: Row) -> list[Point]:
    """All points of a chunk, a row of ``_POINTS``."""
    packed = codec.decode(bytes(row.bytes))
    if len(packed) >= row.n:
        return packed
    return growing.with_tail(packed, row.n, list(envelopes.unpack(bytes(row.envelope))))


def _position(row: Row) -> FilePosition:
    return FilePosition(row.identity, row.position, row.state)
