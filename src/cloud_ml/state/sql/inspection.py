"""What a database is, in one look that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError

from cloud_ml.domain.records import Kind
from cloud_ml.errors import Unavailable
from cloud_ml.state.sql import migrations, records
from cloud_ml.state.sql import tables as t
from cloud_ml.state.sql.dialects import dialect_of

S = TypeVar("S")
T = TypeVar("T")
_PROGRAM = {
    "sqlite": ("SQLite", "SELECT sqlite_version()"),
    "postgresql": ("PostgreSQL", "SELECT current_setting('server_version')"),
}


@dataclass(frozen=True)
class DatabaseInspection:
    """``address`` shows no password; ``schema`` is ``None`` where there are no tables of ours."""

    address: str
    program: str
    missing_file: Path | None = None
    schema: str | None = None


def inspect_database(url: str) -> DatabaseInspection:
    """Look at the database at ``url``.

    Raises:
        InvalidRequest: ``url`` names no database of a kind we know.
        Damaged: Its file is no database.
        Unavailable: Its driver is not installed, or it does not answer.
    """
    dialect, parsed = dialect_of(url)
    address = parsed.render_as_string(hide_password=True)
    program, question = _PROGRAM[parsed.get_backend_name()]
    file = Path(parsed.database) if program == "SQLite" and parsed.database else None
    if file is not None and not file.exists():
        return DatabaseInspection(address, program, missing_file=file)
    engine = dialect.reader(parsed)
    try:
        with engine.connect() as connection:
            version = connection.execute(text(question)).scalar_one()
            return DatabaseInspection(
                address, f"{program} {version}", schema=migrations.version_of(connection)
            )
    except SQLAlchemyError as error:
        words = str(getattr(error, "orig", None) or error).strip().splitlines()
        raise Unavailable(
            f"{address} does not answer: {words[0] if words else type(error).__name__}"
        ) from error
    finally:
        engine.dispose()


def specs(url: str, kind: Kind[S, T]) -> Mapping[str, S]:
    """What is wanted of all records of a kind, by name. Nothing is changed, and a server may run.

    Raises:
        CloudMlError: As ``all_specs``.
    """
    return dict(_named_specs(url, kind))


def all_specs(url: str, kind: Kind[S, T]) -> list[S]:
    """What is wanted of all records of a kind, whatever their names are. Nothing is changed, and a
    server may run.

    Raises:
        Unavailable: The database does not answer, or has other tables than this version's.
        Damaged: A record cannot be read.
    """
    return [spec for _, spec in _named_specs(url, kind)]


def _named_specs(url: str, kind: Kind[S, T]) -> list[tuple[str, S]]:
    dialect, parsed = dialect_of(url)
    engine = dialect.reader(parsed)
    try:
        with engine.connect() as connection:
            if migrations.version_of(connection) != migrations.HEAD:
                raise Unavailable("the database has the tables of another version")
            rows = connection.execute(select(t.records).where(t.records.c.kind == kind.name)).all()
            return [(row.name, records.decode_spec(kind, row)) for row in rows]
    except SQLAlchemyError as error:
        raise Unavailable(f"the database does not answer: {type(error).__name__}") from error
    finally:
        engine.dispose()
