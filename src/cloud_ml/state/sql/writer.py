"""The one writer of a store, with group commit.

Databases write one transaction at a time here (SQLite by nature, PostgreSQL because all pass the
row of ``counters``), and much of a small transaction is waiting for the disk. So whoever finds the
writer busy gets in line. When a commit ends, the first in line becomes the leader: its thread takes
all that has gathered into one transaction, each piece behind its own savepoint.
``docs/decisions/0003-group-commit.md`` has the figures.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine

from cloud_ml import failpoints
from cloud_ml.errors import Damaged, OutOfSpace, Unavailable
from cloud_ml.state.sql.connections import open_connection

R = TypeVar("R")
Work = Callable[[Connection], R]

MAX_GROUP = 64
"""Bounds how long the first of a group waits for the last."""


class Writer:
    """Runs pieces of work, each as one transaction: all of it is durable on return, or none of it
    happened.

    Args:
        engine: Begins its transactions with the right to write.
        committed: Called after each commit that others may wait for, outside of any lock.
        announce: Called at the end of each such transaction, for followers in other processes.
        took: Told the seconds of each commit.
        keeps: Whether its connection stays open from one transaction to the next.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        committed: Callable[[], None],
        announce: Callable[[Connection], None] = lambda _: None,
        took: Callable[[float], None] = lambda _: None,
        keeps: bool = False,
    ) -> None:
        self._engine = engine
        self._keeps = keeps
        self._kept: Connection | None = None  # like the engine, for whoever holds ``_writing``
        self._committed = committed
        self._announce = announce
        self._took = took
        self._queue = threading.Lock()  # guards the two below, for moments
        self._waiting: deque[_Task[Any]] = deque()
        self._has_leader = False
        self._writing = threading.Lock()  # held while the engine is in use
        self._closed = False

    def run(self, work: Work[R], *, wake: bool = True) -> R:
        """Run ``work`` in a transaction and return its result. It touches nothing but the
        connection.

        Raises:
            OutOfSpace: The disk is full or read-only.
            Unavailable: The database does not answer, or the store was closed.
            Damaged: The database is.
            Exception: Whatever ``work`` raised; its transaction never happened.
        """
        task = _Task(work, wakes=wake)
        try:
            self._enqueue(task)
            task.wait()
        except BaseException:  # an interrupt
            self._abandon(task)
            raise
        if task.leads:
            self._lead()
        result = task.outcome()
        if wake:
            self._committed()
        return result

    def close(self) -> None:
        """Wait for the work under way and take no more."""
        with self._writing:
            self._closed = True
            self._let_go()
            self._engine.dispose()

    def _enqueue(self, task: _Task[Any]) -> None:
        with self._queue:
            self._waiting.append(task)
            if not self._has_leader:
                self._pass_on()

    def _abandon(self, task: _Task[Any]) -> None:
        """Leave the line, which must not stop here. What is under way already takes its course."""
        with self._queue, suppress(ValueError):
            self._waiting.remove(task)
            if task.leads:
                self._pass_on()

    def _lead(self) -> None:
        """Commit what has gathered, this thread's own task first, and pass the lead on."""
        with self._queue:
            group = [self._waiting.popleft() for _ in range(min(MAX_GROUP, len(self._waiting)))]
        try:
            with self._writing:
                self._commit(group)
        finally:
            with self._queue:
                # Wake the next leader first, so that its transaction begins while this group is
                # notified.
                self._pass_on()
            for task in group:
                task.wake()

    def _pass_on(self) -> None:
        """Wake the first in line to lead, if there is one."""
        self._has_leader = bool(self._waiting)
        if self._has_leader:
            self._waiting[0].leads = True
            self._waiting[0].wake()

    def _commit(self, group: Sequence[_Task[Any]]) -> None:
        # This remains if an interrupt leaves the block: every waiting thread needs a result.
        failure: Exception | None = Unavailable("the writer of the state store was interrupted")
        try:
            began = time.perf_counter()
            self._transact(group)
            failure = None
            self._took(time.perf_counter() - began)
        except Exception as error:
            failure = error
        finally:
            for task in group:
                task.settle(failure)

    def _transact(self, group: Sequence[_Task[Any]]) -> None:
        if self._closed:
            raise Unavailable("the state store has been closed")
        connection = self._kept = self._kept or open_connection(self._engine)
        whole = False
        try:
            with connection.begin():
                self._attempt_all(connection, group)
            whole = True
        finally:
            if not (whole and self._keeps) or connection.invalidated:
                self._let_go()
        failpoints.here("state.commit.after")

    def _attempt_all(self, connection: Connection, group: Sequence[_Task[Any]]) -> None:
        if len(group) == 1:
            # A single task needs no savepoint: if it fails, the transaction fails.
            group[0].attempt(connection)
        else:
            for task in group:
                _attempt_apart(connection, task)
        if any(task.wakes for task in group):
            self._announce(connection)
        failpoints.here("state.commit.before")

    def _let_go(self) -> None:
        """Give the connection back to the pool, which knows whether it can be used again."""
        connection, self._kept = self._kept, None
        if connection is not None:
            connection.close()


class _Task(Generic[R]):
    """A piece of work, what came of it, and the thread that waits for it."""

    __slots__ = ("_error", "_pause", "_result", "_work", "leads", "wakes")

    def __init__(self, work: Work[R], *, wakes: bool) -> None:
        self._work = work
        self.wakes = wakes
        self._result: Any = None
        self._error: Exception | None = None
        self._pause = threading.Lock()
        self._pause.acquire()
        self.leads = False

    def wait(self) -> None:
        """Wait for the outcome, or for the turn to lead."""
        self._pause.acquire()

    def wake(self) -> None:
        self._pause.release()

    def attempt(self, connection: Connection) -> None:
        self._result = self._work(connection)

    def refuse(self, error: Exception) -> None:
        self._error = error

    def settle(self, failure: Exception | None) -> None:
        """Make the outcome final. A failure of the whole group overrules: nothing of it has
        happened.
        """
        self._error = failure or self._error

    def outcome(self) -> R:
        if self._error is not None:
            raise self._error
        result: R = self._result
        return result


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
    # ROLLBACK TO leaves the savepoint where it is, so it is released in either case.
    connection.exec_driver_sql("RELEASE piece")
