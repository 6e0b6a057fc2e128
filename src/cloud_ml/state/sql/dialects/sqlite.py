"""SQLite: how a database file is made, checked and connected to.

The file is made aside and linked into place when it is whole. So a file that is empty or lacks our
tables is never "new": it is damaged, and nothing is ever written in its place.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, ExceptionContext, QueuePool, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from cloud_ml import failpoints
from cloud_ml.errors import CloudMlError, InvalidRequest, OutOfSpace, Unavailable
from cloud_ml.state.sql import migrations
from cloud_ml.state.sql.connections import execute_directly
from cloud_ml.state.sql.dialects import drafts
from cloud_ml.state.sql.dialects.base import BUSY_TIMEOUT_S, Database
from cloud_ml.state.sql.dialects.sqlite_errors import RESTORE_OR_NAME, damaged, translate

CHECKED_BYTES = 512 * 2**20
"""Up to this size all pages are looked through at open, at about 1 ms per MiB. Larger files
would keep the server from answering for long; their damage is told when it is met, and each
backup is checked in full.
"""
_COMMON = ("foreign_keys = ON",)
# FULL: with NORMAL, SQLite does not sync the WAL at each commit, so a power failure may lose the
# last commits. journal_size_limit: without it, the WAL file keeps its greatest size.
_WRITER = ("journal_mode = WAL", "synchronous = FULL", "journal_size_limit = 67108864")
MOVE_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"
"""Moves the log into the file, or says why it cannot. The end of the last connection does so
too, but says nothing.
"""
_READER = ("query_only = ON",)
_FEW_PAGES = "cache_size = -512"
"""Kilobytes: each of a dozen connections would come to hold 2 MB of what the system keeps in
memory anyway.
"""


def open_database(url: URL, *, create: bool, readers: int) -> Database:
    """Open the file ``url`` names; see ``SqlStateStore.open``."""
    path = path_of(url)
    with translated(path):
        is_new = not path.exists()
        drafts.clear_leftovers(path)
        if is_new:
            _check_may_create(path, create=create)
            _create(path)
        _check_file(path)
        writer, found = _open_writer(path, name=str(path))
        prompt = _engine(
            path, pool_size=1, pragmas=(*_READER, "busy_timeout = 0"), isolation_level="AUTOCOMMIT"
        )
    return Database(
        str(path),
        writer,
        _reader(path, pool_size=readers),
        prompt=prompt,
        found=None if is_new else found,
    )


def reader(url: URL) -> Engine:
    """See ``Dialect.reader``."""
    path = path_of(url)
    with translated(path):
        if not path.exists():
            raise damaged(str(path), "it is missing")
        check(path, pages=False, read_only=True)
    return _reader(path, pool_size=1)


def examine(url: URL, connection: Connection) -> list[str]:
    """See ``Dialect.examine``."""
    path = path_of(url)
    verdict = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    if verdict != "ok":
        raise damaged(str(path), " ".join(verdict.split()))
    return [f"All {pages} pages of the file and every index are whole."]


def check(path: Path, *, pages: bool, name: str = "", read_only: bool = False) -> str | None:
    """Look whether the file is whole: its header, its schema and, if asked, the structure of all
    pages.

    Args:
        path: The file.
        pages: Whether to read all of it.
        name: How messages call it, if not by its path.
        read_only: Leave file and log as they are. Otherwise whoever closes a file last moves its
            log into it, which would finish a damaged one.

    Returns:
        The step of ``migrations`` that it stands at.

    Raises:
        Damaged: It is not whole, or lacks our tables.
    """
    uri = f"file:{quote(str(path))}?mode={'ro' if read_only else 'rw'}"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table'"
        ).fetchall()
        if (migrations.VERSION_TABLE,) not in tables:
            raise damaged(name or str(path), "it has none of Cloud ML's tables")
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0] if pages else "ok"
        if verdict != "ok":
            raise damaged(name or str(path), " ".join(verdict.split()))
        version: tuple[str] | None = connection.execute(migrations.READ_VERSION).fetchone()
        return None if version is None else version[0]


def path_of(url: URL) -> Path:
    """The file a URL names.

    Raises:
        InvalidRequest: It names none, or asks for more than a file.
    """
    if not url.database or url.database == ":memory:" or url.query:
        raise InvalidRequest(
            f"server.database_url is {url}; allowed is sqlite:////absolute/path/of/a/file",
            field="server.database_url",
            value=str(url),
            allowed="sqlite:////absolute/path/of/a/file",
        )
    return Path(url.database).absolute()


def _check_may_create(path: Path, *, create: bool) -> None:
    log = path.with_name(path.name + "-wal")
    # The WAL contains commits that are nowhere else. A new database file would hide their loss.
    if log.exists() and log.stat().st_size > 0:
        raise damaged(str(path), f"it is missing, but its log {log.name} is there")
    if not create:
        raise damaged(str(path), "it is missing", RESTORE_OR_NAME)


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with drafts.draft_of(path) as draft:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _open_writer(draft, name=str(path))[0].dispose()
        with closing(sqlite3.connect(draft)) as connection:
            # Only the database file gets the name, so its log must be empty.
            connection.execute(MOVE_LOG)
        sync(draft)
        failpoints.here("state.create.before")
        with suppress(FileExistsError):  # another server was quicker: its file is as good
            path.hardlink_to(draft)
        failpoints.here("state.create.after")
        sync(path.parent)


def _open_writer(path: Path, *, name: str) -> tuple[Engine, str | None]:
    """The writer of a file that has our tables now, and the schema it had before."""
    engine = _engine(path, pool_size=1, pragmas=_WRITER)
    event.listen(engine, "begin", _begin_with_right_to_write)
    try:
        return engine, migrations.ensure_current(engine, name=name)
    except BaseException:
        engine.dispose()
        raise


def _reader(path: Path, *, pool_size: int) -> Engine:
    return _engine(
        path, pool_size=pool_size, pragmas=(*_READER, _FEW_PAGES), isolation_level="AUTOCOMMIT"
    )


def _check_file(path: Path) -> None:
    size = path.stat().st_size
    if size == 0:
        raise damaged(str(path), "it is empty")
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)
    check(path, pages=size <= CHECKED_BYTES, read_only=True)


def _engine(path: Path, *, pool_size: int, pragmas: tuple[str, ...], **options: Any) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=BUSY_TIMEOUT_S,
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
        **options,
    )

    def prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = (
            None  # transactions begin where we say, not where the driver guesses
        )
        for pragma in (*_COMMON, *pragmas):
            connection.execute(f"PRAGMA {pragma}")

    def explain(context: ExceptionContext) -> BaseException | None:
        ours = translate(context.original_exception, str(path))
        # The pool drops the connection, so the next try gets a fresh one.
        context.is_disconnect = isinstance(ours, Unavailable)
        return ours

    event.listen(engine, "connect", prepare)
    event.listen(engine, "handle_error", explain, retval=True)
    return engine


def _begin_with_right_to_write(connection: Connection) -> None:
    # A transaction that begins as a reader fails at its first write, without waiting, if another
    # connection has committed since (SQLITE_BUSY_SNAPSHOT).
    execute_directly(connection, "BEGIN IMMEDIATE")


def sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise what SQLite and the system say of ``path`` as errors of ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, str(path)) or error from error
    except OSError as error:
        raise _of_the_system(error, path) from error


def _of_the_system(error: OSError, path: Path) -> CloudMlError:
    reason = error.strerror or error
    public_reason = error.strerror or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return OutOfSpace(
            f"The disk of {path} is full or read-only ({reason})",
            public_message=f"The disk of the server's database is full or read-only ({public_reason})",
        )
    return Unavailable(
        f"The database {path} cannot be opened ({reason})",
        public_message=f"The server's database cannot be opened ({public_reason})",
    )
