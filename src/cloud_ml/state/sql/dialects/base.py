"""What the store needs of a database."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine


@dataclass(frozen=True)
class Database:
    """An open database whose tables are those of this version.

    Its engines raise ``OutOfSpace``, ``Unavailable`` or ``Damaged`` in place of what the driver says
    of the machine; all else is SQLAlchemy's.
    """

    name: str
    """How messages call it. Holds no password."""
    writer: Engine
    """Begins each transaction with the sole right to write, so that what it reads stays true to its commit."""
    reader: Engine
    """Commits each statement by itself; sees every commit that was acknowledged before."""

    def close(self) -> None:
        """Let go of all connections."""
        self.reader.dispose()
        self.writer.dispose()
