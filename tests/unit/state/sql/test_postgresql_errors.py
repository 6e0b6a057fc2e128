"""What PostgreSQL says, and what we make of it, without its passwords; no server is asked."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from psycopg.errors import lookup
from sqlalchemy import make_url

from cloud_ml.errors import Conflict, Damaged, OutOfSpace, Unavailable
from cloud_ml.state.sql.dialects import dialect_of
from cloud_ml.state.sql.dialects.postgresql_errors import DatabaseName, translate

PLACE = DatabaseName.of(make_url("postgresql://ann:hunter2@db:5433/state?sslmode=require"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DISK_FULL", OutOfSpace),
        ("READ_ONLY_SQL_TRANSACTION", OutOfSpace),
        ("TOO_MANY_CONNECTIONS", Unavailable),
        ("OUT_OF_MEMORY", Unavailable),
        ("ADMIN_SHUTDOWN", Unavailable),
        ("CANNOT_CONNECT_NOW", Unavailable),
        ("QUERY_CANCELED", Unavailable),
        ("LOCK_NOT_AVAILABLE", Unavailable),
        ("IDLE_IN_TRANSACTION_SESSION_TIMEOUT", Unavailable),
        ("DEADLOCK_DETECTED", Unavailable),
        ("CONNECTION_FAILURE", Unavailable),
        ("INVALID_PASSWORD", Unavailable),
        ("INVALID_CATALOG_NAME", Unavailable),
        ("INSUFFICIENT_PRIVILEGE", Unavailable),
        ("IO_ERROR", Unavailable),
        ("DATA_CORRUPTED", Damaged),
        ("INDEX_CORRUPTED", Damaged),
        ("UNDEFINED_TABLE", Damaged),
        ("DUPLICATE_TABLE", Conflict),
        ("UNIQUE_VIOLATION", None),
        ("FOREIGN_KEY_VIOLATION", None),
        ("SYNTAX_ERROR", None),
    ],
)
def test_translate(name: str, expected: type[Exception] | None) -> None:
    ours = translate(lookup(name)("what PostgreSQL said"), PLACE)
    if expected is None:
        assert ours is None
    else:
        assert type(ours) is expected
        assert "postgresql://ann@db:5433/state" in str(ours)
        assert "what PostgreSQL said" in str(ours)
        assert ours is not None
        if expected is not Conflict:  # which a server meets when it starts
            assert "db:5433" not in ours.document()["message"], "callers see no address"


def test_what_the_driver_says_without_a_code_is_of_the_connection() -> None:
    assert isinstance(translate(psycopg.OperationalError("connection refused"), PLACE), Unavailable)
    assert isinstance(
        translate(psycopg.InterfaceError("the connection is closed"), PLACE), Unavailable
    )
    assert translate(psycopg.ProgrammingError("the query has 0 placeholders"), PLACE) is None


def test_errors_of_others_are_not_ours() -> None:
    assert translate(ValueError("x"), PLACE) is None
    assert translate(None, PLACE) is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://ann:hunter2@db/state", "postgresql://ann@db/state"),
        (
            "postgresql://ann@db/state?password=hunter2&sslpassword=hunter2",
            "postgresql://ann@db/state",
        ),
        (
            "postgresql:///state?host=/run/postgresql&password=hunter2",
            "postgresql:///run/postgresql/state",
        ),
        ("postgresql://ann:hunter2@/state?host=a&host=b", "postgresql://ann@a,b/state"),
    ],
)
def test_a_place_has_a_name_without_secrets_and_keeps_them_out_of_what_is_told(
    url: str, name: str
) -> None:
    place = DatabaseName.of(make_url(url))
    assert place.name == name
    assert "hunter2" not in repr(place)
    assert place.failure_text(psycopg.OperationalError("is hunter2\n  it?")) == "is *** it?"


def test_a_driver_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [
        name for name in sys.modules if name.startswith("cloud_ml.state.sql.dialects.postgresql")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable, match="driver of postgresql") as refused:
        dialect_of("postgresql://ann:hunter2@db/state")
    assert refused.value.hint == "pip install 'cloud-ml[postgres]'"


def test_a_store_of_sqlite_does_not_import_the_driver() -> None:
    code = "import sys, cloud_ml.state.sql.store, cloud_ml.state.sql.dialects.sqlite; print('psycopg' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


@pytest.mark.parametrize(
    ("driver_message", "expected", "hint"),
    [
        ('FATAL: password authentication failed for user "ann"', "refuses the connection", "user"),
        ('FATAL: database "state" does not exist', "refuses the connection", "database"),
        ("fe_sendauth: no password supplied", "refuses the connection", "~/.pgpass"),
        ("connection failed: Connection refused", "does not answer", "Check that PostgreSQL runs"),
    ],
)
def test_what_the_operator_can_do_where_no_connection_is_made(
    driver_message: str, expected: str, hint: str
) -> None:
    ours = translate(psycopg.OperationalError(driver_message), PLACE)
    assert isinstance(ours, Unavailable)
    assert expected in ours.message
    assert hint in (ours.hint or "")


def test_a_right_that_is_missing_is_told_as_such() -> None:
    ours = translate(lookup("INSUFFICIENT_PRIVILEGE")("permission denied for table x"), PLACE)
    assert isinstance(ours, Unavailable)
    assert "does not allow this" in ours.message
    assert "owner" in (ours.hint or "")
