"""A few records of a database that another process may use, read without changing anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, select

from cloud_ml.domain.records import Kind, Record
from cloud_ml.state.sql import migrations, records
from cloud_ml.state.sql import tables as t
from cloud_ml.state.sql.dialects import dialect_of

_AT_ONCE = 500


def find_records(
    url: str, kinds: Mapping[str, Kind[Any, Any]], uids: Collection[str]
) -> list[Record[Any, Any]]:
    """The records with these uids, of these kinds; none where the schema is another version's.

    Raises:
        CloudMlError: The database cannot be read.
    """
    dialect, parsed = dialect_of(url)
    engine = dialect.reader(parsed)
    try:
        with engine.connect() as connection:
            if migrations.version_of(connection) != migrations.HEAD:
                return []
            return list(_find(connection, kinds, sorted(uids)))
    finally:
        engine.dispose()


def has_current_schema(url: str) -> bool:
    """Whether ``find_records`` can find anything: the schema is that of this version.

    Raises:
        CloudMlError: The database cannot be read.
    """
    dialect, parsed = dialect_of(url)
    engine = dialect.reader(parsed)
    try:
        with engine.connect() as connection:
            return migrations.version_of(connection) == migrations.HEAD
    finally:
        engine.dispose()


def _find(
    connection: Connection, kinds: Mapping[str, Kind[Any, Any]], uids: list[str]
) -> Iterator[Record[Any, Any]]:
    for at in range(0, len(uids), _AT_ONCE):
        query = select(t.records).where(
            t.records.c.uid.in_(uids[at : at + _AT_ONCE]), t.records.c.kind.in_(kinds)
        )
        for row in connection.execute(query):
            yield records.decode(kinds[row.kind], row)
