"""Readers: a bounded number, which cannot write."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from cloud_ml.errors import OutOfSpace, Unavailable
from cloud_ml.state.sql import connections
from cloud_ml.state.sql.dialects.base import READERS
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.samples import SAMPLE, commit, make


def test_when_all_connections_are_busy_a_reader_is_told_so(
    store: SqlStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(store)
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_S", 0.01)
    with ExitStack() as busy:
        for _ in range(READERS):
            busy.enter_context(store._reading())
        with pytest.raises(Unavailable, match="busy"):
            store.get(SAMPLE, made.key.uid)
    assert store.get(SAMPLE, made.key.uid) == made


def test_readers_cannot_write(store: SqlStateStore) -> None:
    with (
        store._database.reader.connect() as connection,
        pytest.raises(OutOfSpace, match="readonly"),
    ):
        connection.exec_driver_sql("DELETE FROM records")


def test_whoever_may_read_at_once_waits_for_no_connection(store: SqlStateStore) -> None:
    made = make(store)
    assert store.read_here()
    with ExitStack() as busy:
        for _ in range(READERS):
            busy.enter_context(store._database.reader.connect())
        assert store.get(SAMPLE, made.key.uid) == made
        changed = commit(store, made)
        assert store.get(SAMPLE, made.key.uid) == changed  # no snapshot is held between two reads


def test_whoever_may_read_at_once_neither_waits_for_a_lock_nor_writes(store: SqlStateStore) -> None:
    made = make(store)
    assert store.read_here()
    assert store.get(SAMPLE, made.key.uid) == made
    with pytest.raises(OutOfSpace, match="readonly"), store._reading() as connection:
        connection.exec_driver_sql("DELETE FROM records")
    with store._reading() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 0


@pytest.mark.parametrize("at_once", [True, False])
def test_a_connection_that_was_lost_is_replaced(store: SqlStateStore, at_once: bool) -> None:
    made = make(store)
    if at_once:
        assert store.read_here()
    with store._reading() as connection:
        connection.invalidate()
    assert store.get(SAMPLE, made.key.uid) == made


def test_a_connection_is_kept_and_holds_no_snapshot(store: SqlStateStore) -> None:
    made = make(store)
    with store._reading() as first:
        pass
    changed = commit(store, made)
    with store._reading() as kept:
        assert kept is first
    assert store.get(SAMPLE, made.key.uid) == changed


def test_a_connection_with_an_error_is_not_lent_again_as_it_is(store: SqlStateStore) -> None:
    with pytest.raises(ZeroDivisionError), store._reading() as failed:
        raise ZeroDivisionError
    assert failed.closed
    with store._reading() as connection:
        assert connection is not failed
