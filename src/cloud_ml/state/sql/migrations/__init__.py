"""The way of a database to the tables of this version, step by step, with Alembic.

A step is one file in ``versions/``; ``HEAD`` names the last one. Alembic is imported only when
there is something to do: a normal start reads one row.
"""

from __future__ import annotations

import threading

from sqlalchemy import Connection, Engine, inspect, text

from cloud_ml import failpoints
from cloud_ml.errors import Conflict

HEAD = "0014"
VERSION_TABLE = "schema_version"
READ_VERSION = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608
_ALEMBIC = threading.Lock()  # it keeps its context in globals


def version_of(connection: Connection) -> str | None:
    """The step a database stands at, or ``None`` if it has none of our tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(READ_VERSION)).scalar_one_or_none()


def check_not_newer(version: str | None, *, name: str) -> None:
    """Refuse what we cannot know.

    Raises:
        Conflict: A newer version of Cloud ML has written the database called ``name``.
    """
    # Steps have four digits each, so they compare as text as they do as numbers.
    if version is not None and version > HEAD:
        raise Conflict(
            f"{name} was written by a newer version of Cloud ML (its schema is {version}, "
            f"ours {HEAD})",
            field="server.database_url",
            value=version,
            allowed=f"schema {HEAD} or older",
            hint="Install the newer version again, or restore a backup made before the upgrade.",
        )


def ensure_current(engine: Engine, *, name: str) -> str | None:
    """Bring the database to ``HEAD`` in one transaction; one without our tables is new.

    Returns the step it stood at before.

    Args:
        engine: Begins its transactions with the right to write.
        name: How messages call the database.

    Raises:
        Conflict: A newer version of Cloud ML has written the database.
    """
    # SQLite and PostgreSQL undo changes of tables with their transaction.
    with engine.begin() as connection:
        version = version_of(connection)
        if version == HEAD:
            return version
        check_not_newer(version, name=name)
        _upgrade(connection)
        failpoints.here("state.migrate.before")
    failpoints.here("state.migrate.after")
    return version


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - only when there is something to do
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "cloud_ml.state.sql:migrations")
    config.attributes["connection"] = connection
    with _ALEMBIC:
        command.upgrade(config, HEAD)
