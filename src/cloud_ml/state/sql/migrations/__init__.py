"""The way of a database to the tables of this version, step by step, with Alembic.

A step is one file in ``versions/``; ``HEAD`` names the last one. Alembic is imported only when
there is something to do: a normal start reads one row.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, inspect, text

from cloud_ml.errors import Conflict, Damaged

HEAD = "0001"
VERSION_TABLE = "schema_version"


def version_of(connection: Connection) -> str | None:
    """The step a database stands at, or ``None`` if it has none of our tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()  # noqa: S608


def ensure_current(engine: Engine, *, name: str, may_be_empty: bool) -> None:
    """Bring the database to ``HEAD`` in one transaction.

    Args:
        engine: Begins its transactions with the right to write.
        name: How messages call the database.
        may_be_empty: Whether a database without our tables is new; otherwise it is damaged.

    Raises:
        Conflict: A newer version of Cloud ML has written the database.
        Damaged: It has lost its tables, or is somebody else's.
    """
    with engine.begin() as connection:
        version = version_of(connection)
        if version == HEAD:
            return
        if version is None and not may_be_empty:
            raise Damaged(
                f"{name} has none of Cloud ML's tables; it is left as it is",
                hint="Restore a backup with 'cloudml server restore', or name another file.",
            )
        if version is not None and version > HEAD:
            raise Conflict(
                f"{name} was written by a newer version of Cloud ML (its schema is {version}, ours {HEAD})",
                field="server.database_url",
                value=version,
                allowed=f"schema {HEAD} or older",
                hint="Install the newer version again, or restore a backup made before the upgrade.",
            )
        _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - only when there is something to do
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", "cloud_ml.state.sql:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
