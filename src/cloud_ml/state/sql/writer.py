"""The one writer of a store, with group commit.

Databases write one transaction at a time here (SQLite by nature, PostgreSQL because all pass the
row of ``counters``), and most of a small transaction is waiting for the disk. So whoever finds the
writer busy leaves its work in the queue, and the next to hold the lock commits everything that has
gathered, each piece behind its own savepoint. ``docs/decisions/0003-group-commit.md`` has the figures.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Connection, Engine

from cloud_ml.errors import Damaged, OutOfSpace, Unavailable

R = TypeVar("R")
Work = Callable[[Connection], R]

MAX_GROUP = 64
"""Bounds how long the first of a group waits for the last."""


class Writer:
    """Runs pieces of work, each as one transaction: all of it is durable on return, or none of it happened.

    Args:
        engine: Begins its transactions with the right to write.
        committed: Called after each commit that others may wait for, outside of any lock.
    """

    def __init__(self, engine: Engine, *, committed: Callable[[], None]) -> None:
        self._engine = engine
        self._committed = committed
        self._lock = threading.Lock()
        self._waiting: deque[_Task[Any]] = deque()
        self._closed = False

    def run(self, work: Work[R], *, wake: bool = True) -> R:
        """Run ``work`` in a transaction and return its result. It touches nothing but the connection.

        Raises:
            OutOfSpace: The disk is full or read-only.
            Unavailable: The database does not answer, or the store was closed.
            Damaged: The database is.
            Exception: Whatever ``work`` raised; its transaction never happened.
        """
        task = _Task(work)
        self._waiting.append(task)
        with self._lock:
            while not task.done:
                self._commit([self._waiting.popleft() for _ in range(min(MAX_GROUP, len(self._waiting)))])
        result = task.outcome()
        if wake:
            self._committed()
        return result

    def close(self) -> None:
        """Wait for the work under way and take no more."""
        with self._lock:
            self._closed = True
            self._engine.dispose()

    def _commit(self, group: Sequence[_Task[Any]]) -> None:
        failure: Exception | None = Unavailable("the writer of the state store was interrupted")
        try:
            self._transact(group)
            failure = None
        except Exception as error:
            failure = error
        finally:
            for task in group:
                task.settle(failure)

    def _transact(self, group: Sequence[_Task[Any]]) -> None:
        if self._closed:
            raise Unavailable("the state store has been closed")
        with self._engine.begin() as connection:
            if len(group) == 1:
                group[0].attempt(connection)
                return
            for task in group:
                _attempt_apart(connection, task)


class _Task(Generic[R]):
    """A piece of work and what came of it."""

    __slots__ = ("_error", "_result", "_work", "done")

    def __init__(self, work: Work[R]) -> None:
        self._work = work
        self._result: R | None = None
        self._error: Exception | None = None
        self.done = False

    def attempt(self, connection: Connection) -> None:
        self._result = self._work(connection)

    def refuse(self, error: Exception) -> None:
        self._error = error

    def settle(self, failure: Exception | None) -> None:
        """Make the outcome final. A failure of the whole group overrules: nothing of it has happened."""
        self._error = failure or self._error
        self.done = True

    def outcome(self) -> R:
        if self._error is not None:
            raise self._error
        return cast("R", self._result)


def _attempt_apart(connection: Connection, task: _Task[Any]) -> None:
    """Let a piece of work fail alone; what is wrong with the machine fails the whole group."""
    connection.exec_driver_sql("SAVEPOINT piece")
    try:
        task.attempt(connection)
    except (OutOfSpace, Unavailable, Damaged):
        raise
    except Exception as error:
        connection.exec_driver_sql("ROLLBACK TO piece")
        task.refuse(error)
    connection.exec_driver_sql("RELEASE piece")
