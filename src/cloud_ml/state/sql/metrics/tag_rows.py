"""Rows of ``summary_tags``, read and written within a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, func, insert, select, update

from cloud_ml.domain.metrics.summary_tags import SummaryTag
from cloud_ml.state.sql.statements import Statement
from cloud_ml.state.sql.tables import records, summary_tags

_T = summary_tags.c
_COLUMNS = (_T.name, _T.kind, _T.count, _T.last_step, _T.last_at)
_NAMED = Statement(
    select(*_COLUMNS)
    .where(_T.run == bindparam("its_run"), _T.name == bindparam("its_name"))
    .order_by(_T.kind)
)
_COUNT = Statement(
    select(func.count().label("tags")).select_from(summary_tags).where(
        _T.run == bindparam("its_run")
    )
)  # fmt: skip
_ADD = Statement(insert(summary_tags))
_UPDATE = Statement(
    update(summary_tags)
    .where(
        _T.run == bindparam("its_run"),
        _T.name == bindparam("its_name"),
        _T.kind == bindparam("its_kind"),
    )
    .values({name: bindparam(f"new_{name}") for name in ("count", "last_step", "last_at")})
    .returning(_T.run)
)
_OF_RUN = Statement(
    select(*_COLUMNS)
    .join(records, records.c.number == _T.run)
    .where(records.c.uid == bindparam("this"))
    .order_by(_T.name, _T.kind)
)


class SqlTagRows:
    """See ``TagRows``. ``run`` is the number of the run's record."""

    def __init__(self, connection: Connection, run: int) -> None:
        self._connection = connection
        self._run = run

    def tags_of(self, name: str) -> Sequence[SummaryTag]:
        """See ``TagRows.tags_of``."""
        found = _NAMED.rows(self._connection, {"its_run": self._run, "its_name": name})
        return [SummaryTag(*row) for row in found]

    def count_tags(self) -> int:
        """See ``TagRows.count_tags``."""
        return int(_COUNT.one(self._connection, {"its_run": self._run}).tags)

    def put_tag(self, tag: SummaryTag) -> None:
        """See ``TagRows.put_tag``."""
        this = {"its_run": self._run, "its_name": tag.name, "its_kind": tag.kind}
        content = {"count": tag.count, "last_step": tag.last_step, "last_at": tag.last_at}
        new = {f"new_{name}": value for name, value in content.items()}
        if not _UPDATE.rows(self._connection, {**this, **new}):
            key = {"run": self._run, "name": tag.name, "kind": tag.kind}
            _ADD.run(self._connection, {**key, **content})


def tags_of_run(connection: Connection, uid: str) -> Sequence[SummaryTag]:
    """See ``MetricStore.tags``."""
    return [SummaryTag(*row) for row in _OF_RUN.rows(connection, {"this": uid})]
