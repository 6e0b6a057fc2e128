"""PostgreSQL: how its sessions are set up, and how the right to write is taken.

A transaction that writes begins by taking one advisory lock, as one in SQLite begins with ``BEGIN
IMMEDIATE``: every statement after it sees all earlier commits, so that numbers grow in the order of
commits. The lock is the server's to give back: a process that hangs with it loses it after
``STALLED_S``, one that dies at once. ``docs/decisions/0010-postgresql.md`` weighs it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
from sqlalchemy import URL, Connection, Engine, ExceptionContext, QueuePool, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from cloud_ml.errors import InvalidRequest, Unavailable
from cloud_ml.state.sql import migrations
from cloud_ml.state.sql.dialects.base import Database
from cloud_ml.state.sql.dialects.postgresql_errors import (
    RESTORE_OR_NAME,
    DatabaseName,
    damaged,
    translate,
)
from cloud_ml.state.sql.dialects.postgresql_listener import CHANNEL, Listener

OLDEST = 13
BUSY_TIMEOUT_S = 5
"""How long a writer waits for one of another process, and a thread for a free connection."""
STATEMENT_TIMEOUT_S = 30
STALLED_S = 10
"""How long a session may do nothing in the middle of a transaction, which keeps all other
writers waiting.
"""
_RIGHT_TO_WRITE = (
    "SELECT pg_advisory_xact_lock(4857390266127)"  # any number; the same in every version
)
_RIGHT_AND_SCHEMA = f"{_RIGHT_TO_WRITE}; {migrations.READ_VERSION}"
"""Two statements on one trip. The second one begins when the right is there, so it sees a migration
that the first one waited for.
"""
_ALIVE = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "cloudml",
}
"""A peer that is gone without a word is noticed within half a minute. A URL may say otherwise."""
_COMMON = {
    "lock_timeout": f"{BUSY_TIMEOUT_S}s",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
    "idle_in_transaction_session_timeout": f"{STALLED_S}s",
}
_READER = {**_COMMON, "default_transaction_read_only": "on"}
_UNHURRIED = {**_COMMON, "statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
_DURABLE = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""


@dataclass(frozen=True)
class PostgresDatabase(Database):
    """A database whose commits other processes hear of."""

    place: DatabaseName
    sender: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Marks our own announcements: whoever commits here has woken its followers itself."""

    def announce(self, connection: Connection) -> None:
        """See ``Database.announce``: the server delivers it with the commit, or never."""
        connection.exec_driver_sql("SELECT pg_notify(%s, %s)", (CHANNEL, self.sender))

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See ``Database.listen``."""
        listener = Listener(
            self.place, lambda: _connect(self.writer), ignored=self.sender, wake=wake
        )
        listener.start()
        return listener.stop


def open_database(url: URL, *, create: bool, readers: int) -> Database:
    """Open the database ``url`` names; see ``SqlStateStore.open``."""
    place = _place_of(url)
    migrator = _engine(url, place, settings=_UNHURRIED, writes=True)
    try:
        _check_server(migrator, place, has_tables=not create)
        found = migrations.ensure_current(migrator, name=place.name)
    finally:
        migrator.dispose()
    return PostgresDatabase(
        place.name,
        writer=_engine(url, place, settings=_COMMON, writes=True, checks_schema=True),
        reader=_engine(url, place, settings=_READER, pool_size=readers),
        found=found,
        place=place,
    )


def reader(url: URL) -> Engine:
    """See ``Dialect.reader``."""
    place = _place_of(url)
    engine = _engine(url, place, settings={**_UNHURRIED, "default_transaction_read_only": "on"})
    try:
        _check_server(engine, place, has_tables=True)
    except BaseException:
        engine.dispose()
        raise
    return engine


def examine(url: URL, connection: Connection) -> list[str]:
    """See ``Dialect.examine``."""
    place = _place_of(url)
    known = {
        name: connection.exec_driver_sql(f"SHOW {name}").scalar_one()
        for name in ("server_version", "fsync", "full_page_writes", "data_checksums")
    }
    off = [name for name in ("fsync", "full_page_writes") if known[name] == "off"]
    if off:
        raise damaged(
            place, f"{' and '.join(off)} of its server are off: a power cut may destroy it"
        )
    checksums = "with" if known["data_checksums"] == "on" else "without"
    return [
        f"PostgreSQL {known['server_version']} in UTF-8, {checksums} checksums of its pages; "
        "it writes through."
    ]


def _place_of(url: URL) -> DatabaseName:
    """The name and the secrets in a URL.

    Raises:
        InvalidRequest: It asks for another driver, or names no database.
    """
    if url.drivername not in ("postgresql", "postgresql+psycopg") or not url.database:
        place = DatabaseName.of(url)
        raise InvalidRequest(
            f"server.database_url is {place.name} with the driver {url.drivername}; "
            "allowed is postgresql://user@host/database",
            field="server.database_url",
            value=place.name,
            allowed="postgresql://user@host/database",
        )
    return DatabaseName.of(url)


def _check_server(engine: Engine, place: DatabaseName, *, has_tables: bool) -> None:
    """Refuse a server or a database that cannot hold our text, or lacks tables it should have.

    Raises:
        InvalidRequest: It is too old, or not in UTF-8.
        Damaged: It has none of our tables, though it should.
    """
    with engine.connect() as connection:
        version = connection.exec_driver_sql("SHOW server_version_num").scalar_one()
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if int(version) < OLDEST * 10_000:
            raise _refused(
                place, f"PostgreSQL {int(version) // 10_000}", f"PostgreSQL {OLDEST} or newer"
            )
        if encoding != "UTF8":
            raise _refused(place, f"the encoding {encoding}", "UTF8")
        if has_tables and migrations.version_of(connection) is None:
            raise damaged(place, "it has none of Cloud ML's tables", RESTORE_OR_NAME)


def _refused(place: DatabaseName, given: str, allowed: str) -> InvalidRequest:
    return InvalidRequest(
        f"the database {place.name} has {given}; allowed is {allowed}",
        field="server.database_url",
        value=given,
        allowed=allowed,
    )


def _engine(
    url: URL,
    place: DatabaseName,
    *,
    settings: Mapping[str, str],
    writes: bool = False,
    checks_schema: bool = False,
    pool_size: int = 1,
) -> Engine:
    engine = create_engine(
        url.set(drivername="postgresql+psycopg").update_query_dict(
            {name: value for name, value in _ALIVE.items() if name not in url.query}
        ),
        # Each statement sees what was committed when it begins. With REPEATABLE READ, the
        # snapshot would be older than the lock that the first statement waits for.
        isolation_level="READ COMMITTED" if writes else "AUTOCOMMIT",
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=BUSY_TIMEOUT_S,
        pool_use_lifo=True,
        use_native_hstore=False,
        hide_parameters=True,
    )

    def prepare(connection: psycopg.Connection[Any], _entry: ConnectionPoolEntry) -> None:
        # Use autocommit: a setting made within a transaction is lost on rollback.
        before, connection.autocommit = connection.autocommit, True
        calls = ", ".join("set_config(%s, %s, false)" for _ in settings)
        connection.execute(f"SELECT {calls}", [word for pair in settings.items() for word in pair])
        # Acknowledged writes must be on disk. Every value except ``off`` waits for the server's
        # own disk.
        if writes:
            connection.execute(_DURABLE)
        connection.autocommit = before

    def explain(context: ExceptionContext) -> BaseException | None:
        error = context.original_exception
        # Without a connection: the driver has refused the options before it connected.
        if context.connection is None and isinstance(error, psycopg.ProgrammingError):
            return _refused(
                place,
                f"an option that cannot be used ({place.failure_text(error)})",
                "options of libpq",
            )
        return translate(error, place)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "handle_error", explain, retval=True)
    if checks_schema:
        event.listen(engine, "begin", partial(_begin_in_own_schema, place))
    elif writes:
        event.listen(engine, "begin", _begin_with_right_to_write)
    return engine


def _begin_with_right_to_write(connection: Connection) -> None:
    connection.exec_driver_sql(_RIGHT_TO_WRITE)


def _begin_in_own_schema(place: DatabaseName, connection: Connection) -> None:
    """Take the right to write, and look at the schema: nothing is written in the form of before.

    Raises:
        Unavailable: Another version of Cloud ML has changed the schema since the start.
    """
    # Without parameters, psycopg sends several statements as they are.
    result = connection.exec_driver_sql(
        _RIGHT_AND_SCHEMA, execution_options={"no_parameters": True}
    )
    cursor = result.cursor
    cursor.nextset()
    row = cursor.fetchone()
    result.close()
    found = row[0] if row else "none"
    if found != migrations.HEAD:
        raise Unavailable(
            f"The database {place.name} has the schema {found} now, and this server writes "
            f"{migrations.HEAD}: another version of Cloud ML has changed it",
            hint="Stop this server, and start the version that runs elsewhere.",
        )


def _connect(engine: Engine) -> psycopg.Connection[Any]:
    """A connection outside of any pool, with the same address and words."""
    arguments, words = engine.dialect.create_connect_args(engine.url)
    return psycopg.connect(*arguments, **words, autocommit=True)
