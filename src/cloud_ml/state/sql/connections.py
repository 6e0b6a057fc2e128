"""Connections that stay open from one transaction to the next.

SQLAlchemy's pool takes several times as long to hand out a connection of SQLite as a read of it
takes. So those of SQLite are kept. A connection that met an error goes back to the pool, which
knows whether it can be used again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, NoReturn, cast

from sqlalchemy import Connection, Engine, QueuePool
from sqlalchemy.exc import TimeoutError as NoFreeConnection

from cloud_ml.errors import Unavailable
from cloud_ml.state.sql.dialects.base import BUSY_TIMEOUT_S, Database
from cloud_ml.state.sql.dialects.sqlite_errors import translate

DRIVER = "_cloud_ml_driver"
"""An attribute of connections of SQLite that are kept: the connection of the driver. SQLAlchemy's
own places for such a thing cost a call of Python for each statement.
"""


def open_connection(engine: Engine) -> Connection:
    """A connection to keep. One of SQLite says which connection of the driver it is."""
    connection = engine.connect()
    if engine.dialect.name == "sqlite":
        setattr(connection, DRIVER, connection.connection.driver_connection)
    return connection


def execute_directly(
    connection: Connection, text: str, values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Execute a statement of SQLite without SQLAlchemy, and take in what it gives to the end: a
    statement left in the middle would hold its snapshot.

    Raises:
        OutOfSpace, Unavailable, Damaged: What the driver says of the machine.
        sqlite3.Error: All else that it says.
    """
    driver: Any = getattr(connection, DRIVER, None) or connection.connection.driver_connection
    try:
        found: list[tuple[Any, ...]] = driver.execute(text, values).fetchall()
    except sqlite3.Error as error:
        raise_error(connection, error)
    return found


def raise_error(connection: Connection, error: sqlite3.Error) -> NoReturn:
    """Raise what the driver says of a statement on a connection.

    Raises:
        OutOfSpace, Unavailable, Damaged: It is about the machine.
        sqlite3.Error: It is about something else.
    """
    if (ours := translate(error, str(connection.engine.url.database))) is None:
        raise error
    if isinstance(ours, Unavailable):
        connection.invalidate(error)  # the next try gets a fresh one
    raise ours from error


class ReadConnections:
    """Lends connections for statements, each of which by itself sees one state of the database.

    Args:
        database: Whose connections they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._closed = False
        self._keeps = database.prompt is not None
        self._permits = SimpleQueue[None]()
        for _ in range(cast("QueuePool", database.reader.pool).size()):
            self._permits.put(None)
        self._idle: list[Connection] = []
        self._prompt: _PromptReading | None = None
        self._prompt_thread: int | None = None

    def __call__(self) -> AbstractContextManager[Connection]:
        """A block with a connection.

        Raises:
            Unavailable: The store has been closed. Entering the block: all connections are busy.
        """
        if self._closed:
            raise Unavailable("the state store has been closed")
        if self._prompt is not None and threading.get_ident() == self._prompt_thread:
            return self._prompt
        return _Reading(self)

    def read_here(self) -> bool:
        """Have the thread that calls read on a connection of its own, which never waits. Returns
        whether the database has such a one.
        """
        if self._database.prompt is None:
            return False
        if self._prompt is None:
            self._prompt = _PromptReading(self._database.prompt)
        self._prompt_thread = threading.get_ident()
        return True

    def take(self) -> Connection:
        """A connection that is nobody's until ``give_back``.

        Raises:
            Unavailable: None became free in time.
        """
        try:
            if not self._keeps:
                return self._database.reader.connect()
            self._permits.get(timeout=BUSY_TIMEOUT_S)
        except (Empty, NoFreeConnection) as error:
            raise Unavailable(f"{self._database.name}: all connections are busy") from error
        try:
            return self._idle.pop() if self._idle else open_connection(self._database.reader)
        except BaseException:
            self._permits.put(None)
            raise

    def give_back(self, connection: Connection, *, failed: bool) -> None:
        """The caller needs it no more. One that failed is not lent again as it is."""
        if not self._keeps:
            connection.close()
            return
        if failed or self._closed or connection.invalidated:
            connection.close()
        else:
            # Return the connection before the permit, so that the next holder of the permit can
            # reuse it.
            self._idle.append(connection)
        self._permits.put(None)

    def close(self) -> None:
        """Lend none any more. Those that are lent are closed when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        if self._prompt is not None:
            self._prompt.close()


class _Reading:
    """A block with a connection that other threads may have next."""

    __slots__ = ("_connection", "_connections")

    def __init__(self, connections: ReadConnections) -> None:
        self._connections = connections

    def __enter__(self) -> Connection:
        self._connection = self._connections.take()
        return self._connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connections.give_back(self._connection, failed=kind is not None)


class _PromptReading:
    """Blocks of one thread, all with the same connection."""

    __slots__ = ("_connection", "_engine")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def __enter__(self) -> Connection:
        if self._connection is None:
            self._connection = open_connection(self._engine)
        return self._connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None or (self._connection is not None and self._connection.invalidated):
            self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
