"""What SQLite says, and what we make of it."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from cloud_ml.errors import CloudMlError, Damaged, OutOfSpace, Unavailable
from cloud_ml.state.sql.dialects.sqlite import translated
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


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, OutOfSpace), (errno.EROFS, OutOfSpace), (errno.EIO, Unavailable)],
)
def test_what_the_system_says_names_the_path_to_the_operator_only(
    number: int, expected: type[CloudMlError]
) -> None:
    path = Path("/data/state.db")
    with pytest.raises(expected) as caught, translated(path):
        raise OSError(number, os.strerror(number), str(path))
    assert str(path) in str(caught.value)
    assert "/data" not in caught.value.document()["message"]
    assert os.strerror(number) in caught.value.document()["message"]
