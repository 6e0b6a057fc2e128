"""What the store needs of a database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import URL, Connection, Engine

READERS = 8
BUSY_TIMEOUT_S = 5.0
"""How long a writer waits for one of another process, and a thread for a free connection."""


@dataclass(frozen=True)
class Database:
    """An open database whose tables are those of this version.

    Its engines raise ``OutOfSpace``, ``Unavailable`` or ``Damaged`` in place of what the driver
    says of the machine; all else is SQLAlchemy's.
    """

    name: str
    """How messages call it. Holds no password."""
    writer: Engine
    """Begins each transaction with the sole right to write, so that what it reads stays true to
    its commit.
    """
    reader: Engine
    """Commits each statement by itself; sees every commit that was acknowledged before."""
    prompt: Engine | None = field(default=None, kw_only=True)
    """Reads like ``reader``, on one connection, and never waits; ``None`` where a read always
    may.
    """
    found: str | None
    """The schema it had before it was opened; ``None`` if it was made."""

    def announce(self, connection: Connection) -> None:
        """Let other processes that listen hear of the commit of this transaction, if the
        database can.
        """

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` after commits of other processes, if the database can; returns the way
        to stop.
        """
        return lambda: None

    def close(self) -> None:
        """Let go of all connections."""
        self.reader.dispose()
        if self.prompt is not None:
            self.prompt.dispose()
        self.writer.dispose()


class Dialect(Protocol):
    """What a module of this room offers for its kind of database."""

    def open_database(self, url: URL, *, create: bool, readers: int) -> Database:
        """Open the database, check it, and bring its tables to this version."""

    def reader(self, url: URL) -> Engine:
        """Open the database to look at it: nothing is made, moved to another version, or written.

        Raises:
            Damaged: It is missing, or cannot be read.
            Unavailable: It does not answer.
        """

    def examine(self, url: URL, connection: Connection) -> list[str]:
        """Look over what is particular to this kind of database; returns what was verified, in
        sentences.

        Args:
            url: The database.
            connection: One of the engine that ``reader`` gave.

        Raises:
            Damaged: Something is wrong with it.
        """
