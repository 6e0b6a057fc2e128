"""What a check finds: each damage with a database that was whole before it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cloud_ml.errors import Conflict, Damaged
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.state.sql.verify import verify
from cloud_ml.testing.state.items import PLAN, Mark, Plan, Step
from cloud_ml.testing.state.samples import NOW, OTHER, SAMPLE, SampleSpec, commit, event, make

KINDS = {kind.name: kind for kind in (SAMPLE, OTHER, PLAN)}
DAMAGES = {
    "INSERT INTO metric_usage VALUES ('red', 7)": "red is counted to keep 7 points",
    "UPDATE counters SET revision = 1": "a record has the number 4, but only 1 were given out",
    "UPDATE counters SET event = 1": "an event has the number 2, but only 1 were given out",
    "UPDATE counters SET revision = 5": "a mark of deletion has the number 6",
    "INSERT INTO experiments VALUES ('red', '1', 'digits', 0, 0, 0, '{}', 9)": (
        "an experiment has the number 9"
    ),
    "DELETE FROM counters": "the row of counters is gone",
    "UPDATE records SET spec = '{}' WHERE name = 'one'": "the spec of wish",
    "UPDATE records SET status = '{\"phase\": \"Lost\"}' WHERE name = 'one'": "the status of wish",
    "UPDATE records SET index_value = 'Done' WHERE name = 'one'": "is listed as Done",
    "UPDATE records SET kind = 'dream' WHERE name = 'one'": "unknown kind dream",
    "UPDATE records SET parent_uid = 'nobody' WHERE name = 'one'": "made for a record that is gone",
    "UPDATE status_items SET document = '[]' WHERE position = 0": "the items of plan",
    "DELETE FROM status_items WHERE position = 0": "is missing",
    "DELETE FROM status_items WHERE list = -1": "there is no item 1, of which there are elements",
    "INSERT INTO status_items VALUES (999, -1, 0, 1, '{}')": "items of record 999",
    "INSERT INTO events VALUES ('nobody', 1, '', '', '', '')": "events of nobody",
}


@pytest.fixture
def filled(store: SqlStateStore, path: Path) -> Path:
    commit(store, make(store, events=[event("made"), event("and told")]))
    make(store, "two", kind=OTHER)
    steps = (Step("a"), Step("b", marks=(Mark(1),)))
    store.create(
        PLAN,
        org="red",
        name="plan",
        owner="ann",
        spec=SampleSpec(""),
        status=Plan(steps=steps),
        now=NOW,
    )
    gone = make(store, "gone")
    store.delete(SAMPLE, gone.key.uid, fence=None)
    return path


def test_what_holds_is_told_while_the_database_is_in_use(filled: Path, url: str) -> None:
    assert list(verify(url, KINDS))[1:] == [
        "The schema is 0014, that of this version.",
        "The counters stand at revision 6 and event 2; nothing is beyond them.",
        "3 records (1 other, 1 plan, 1 wish), each of which can be read.",
        "3 items of lists, each of a record that is there.",
        "2 events, each of a record that is there.",
        "The points of metrics are as many as they are counted to be.",
    ]


@pytest.mark.parametrize("statement", DAMAGES)
def test_what_does_not_hold_is_told(filled: Path, url: str, statement: str) -> None:
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(Damaged, match=DAMAGES[statement]):
        list(verify(url, KINDS))


def test_an_index_that_does_not_fit_its_table_is_found(
    filled: Path, url: str, store: SqlStateStore
) -> None:
    store.close()
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, '(kind, number)', '(uid, number)') "
            "WHERE name = 'records_by_kind'"
        )
    with pytest.raises(Damaged, match="records_by_kind"):
        list(verify(url, KINDS))


@pytest.mark.parametrize(
    ("version", "message"), [("9999", "newer version"), ("0000", "schema is 0000")]
)
def test_another_schema_is_told_and_left(
    filled: Path, url: str, version: str, message: str
) -> None:
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("UPDATE schema_version SET version_num = ?", [version])
    with pytest.raises(Conflict, match=message):
        list(verify(url, KINDS))
    with closing(sqlite3.connect(filled)) as connection:
        assert connection.execute("SELECT version_num FROM schema_version").fetchone() == (version,)


def test_nothing_is_made_where_nothing_is(url: str, path: Path) -> None:
    with pytest.raises(Damaged, match="missing"):
        list(verify(url, KINDS))
    assert not path.exists()
