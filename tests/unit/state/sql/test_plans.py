"""A page costs the same at any size of the table: every query walks an index, and stops."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.dialects import sqlite

from cloud_ml.state.sql import changes, events, listing, records
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.state.sql.tracking import rows as tracking_rows
from cloud_ml.testing.state.samples import SAMPLE, Phase

ORGS = [None, "red"]
INDEXES = [None, ["Busy"], list(Phase)]
LIMIT = 20
TABLES = ("records", "deletions", "events", "experiments")


def page(
    org: str | None, indexes: list[str] | None, after: int | None
) -> tuple[Any, dict[str, Any]]:
    return listing.query(SAMPLE, org=org, indexes=indexes, after=after, limit=LIMIT)


QUERIES = {
    f"list org={org} indexes={indexes} after={after}": page(org, indexes, after)
    for org in ORGS
    for indexes in INDEXES
    for after in (None, 150)
} | {
    "get": (records._GET, {"this": "uid150", "its_kind": "wish"}),
    "find": (records._FIND, {"its_kind": "wish", "its_org": "red", "its_name": "n150"}),
    "changes": (changes.FEED, {"after": 100, "rows": LIMIT}),
    "changes of experiments": (tracking_rows.CHANGES, {"after": 100, "rows": LIMIT}),
    "events": (events._OF_RECORD, {"this": "uid150", "after": 0, "rows": LIMIT}),
    "old events": (events._DROP_OLD, {"this": "uid150", "most": LIMIT}),
}


@pytest.fixture
def connection(path: Path, url: str) -> Iterator[sqlite3.Connection]:
    SqlStateStore.open(url).close()
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def sql_of(name: str) -> tuple[str, list[Any]]:
    statement, parameters = QUERIES[name]
    statement = statement.statement
    compiled = statement.compile(dialect=sqlite.dialect(paramstyle="qmark"))
    values = compiled.construct_params(parameters)
    return str(compiled), [values[key] for key in compiled.positiontup or ()]


def grow(connection: sqlite3.Connection, start: int, end: int) -> None:
    """Every eighth record is red, so that the stretches of an organisation are long enough to
    page.
    """
    rows = (
        (
            n,
            f"uid{n}",
            "red" if n % 8 == 0 else f"org{n % 7}",
            f"n{n}",
            list(Phase)[(n // 8) % 3].value,
            n,
        )
        for n in range(start, end)
    )
    connection.executemany(
        "INSERT INTO records (number, uid, kind, org, name, owner, index_value, generation, "
        "revision, created_at, updated_at, title, spec, status) VALUES (?, ?, 'wish', ?, ?, 'ann', "
        "?, 1, ?, '', '', '', '{}', '{}')",
        rows,
    )
    connection.executemany(
        "INSERT INTO experiments VALUES ('red', ?1, ?1, 0, 0, 0, '{}', ?1)",
        ((n,) for n in range(start, end)),
    )
    marks = ((end * 10 + n, f"gone{n}") for n in range(start, end))
    connection.executemany(
        "INSERT INTO deletions (revision, kind, uid, deleted_at) VALUES (?, 'wish', ?, '')", marks
    )
    connection.execute(
        "INSERT OR IGNORE INTO events SELECT uid, number, '', 'Normal', '', '' FROM records"
    )


def steps(connection: sqlite3.Connection, name: str) -> int:
    """How many instructions SQLite's machine runs for a query."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    connection.set_progress_handler(tick, 1)
    connection.execute(*sql_of(name)).fetchall()
    connection.set_progress_handler(None, 0)
    return count


@pytest.mark.parametrize("name", QUERIES)
def test_no_table_is_scanned(connection: sqlite3.Connection, name: str) -> None:
    sql, parameters = sql_of(name)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
    reads = [
        line
        for line in plan
        if line.startswith(("SCAN records", *(f"SEARCH {table}" for table in TABLES)))
    ]
    assert reads
    assert not [line for line in plan if line.startswith(tuple(f"SCAN {one}" for one in TABLES))]
    if "Busy" not in sql and len(reads) == 1:
        assert not [line for line in plan if "TEMP B-TREE" in line]


@pytest.mark.parametrize("name", QUERIES)
def test_the_work_does_not_grow_with_the_table(connection: sqlite3.Connection, name: str) -> None:
    grow(connection, 1, 1_000)
    small = steps(connection, name)
    grow(connection, 1_000, 10_000)
    assert steps(connection, name) <= small * 1.1 + 20
