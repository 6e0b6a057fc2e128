"""What SQLite says, and what we make of it."""

from __future__ import annotations

import sqlite3

import pytest

from cloud_ml.errors import CloudMlError, Damaged, OutOfSpace, Unavailable
from cloud_ml.state.sql.dialects.sqlite_errors import translate


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, OutOfSpace),
        (sqlite3.SQLITE_READONLY, OutOfSpace),
        (sqlite3.SQLITE_READONLY_DBMOVED, OutOfSpace),
        (sqlite3.SQLITE_IOERR_SHMSIZE, OutOfSpace),
        (sqlite3.SQLITE_IOERR_FSYNC, Unavailable),
        (sqlite3.SQLITE_IOERR_READ, Unavailable),
        (sqlite3.SQLITE_BUSY, Unavailable),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Unavailable),
        (sqlite3.SQLITE_CANTOPEN, Unavailable),
        (sqlite3.SQLITE_CORRUPT, Damaged),
        (sqlite3.SQLITE_NOTADB, Damaged),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, None),
        (sqlite3.SQLITE_ERROR, None),
    ],
)
def test_translate(code: int, expected: type[Exception] | None) -> None:
    error = sqlite3.OperationalError("what SQLite said")
    error.sqlite_errorcode = code
    ours = translate(error, "/data/state.db")
    if expected is None:
        assert ours is None
    else:
        assert type(ours) is expected
        assert "/data/state.db" in str(ours)
        assert "what SQLite said" in str(ours)
        assert isinstance(ours, CloudMlError)
        assert "/data" not in ours.document()["message"], "callers see no path of the server"
        assert "what SQLite said" in ours.document()["message"]


def test_errors_of_others_are_not_ours() -> None:
    assert translate(ValueError("x"), "/data/state.db") is None
    assert translate(None, "/data/state.db") is None
