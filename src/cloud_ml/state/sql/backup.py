"""Copies of a database: taken while it is in use, and put back in its place."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL

from cloud_ml import failpoints
from cloud_ml.errors import AlreadyExists, Damaged, InvalidRequest, NotFound
from cloud_ml.state import epochs
from cloud_ml.state.sql import migrations
from cloud_ml.state.sql.dialects import dialect_of, drafts, sqlite
from cloud_ml.state.sql.dialects.sqlite_errors import translate


def backup(url: str, target: Path) -> None:
    """Write a whole, checked copy of the SQLite database at ``url`` to ``target``.

    The copy shows one moment: every commit acknowledged before the call is in it. Writers go on
    meanwhile. ``target`` appears when it is complete and on disk, readable by its owner alone.

    Raises:
        InvalidRequest: ``url`` names no file of SQLite; for PostgreSQL the hint is the command that
            does it. Or ``target`` is a folder.
        NotFound: There is no folder for ``target``.
        AlreadyExists: There is something at ``target``.
        Damaged: The database, or what was copied of it, is damaged.
        OutOfSpace: The disk of ``target`` is full or read-only.
        Unavailable: The database or the folder of ``target`` cannot be read.
    """
    source = _file_of(url, lambda database: _dump_command(database, target))
    _check_target(target)
    with sqlite.translated(source):
        source.stat()  # SQLite would make a missing file
    with sqlite.translated(target), drafts.draft_of(target) as draft:
        _create(draft, target)
        _copy(source, draft)
        with sqlite.translated(source):
            sqlite.check(draft, pages=True, name=str(source))
        sqlite.sync(draft)
        failpoints.here("state.backup.before")
        _put_in_place(draft, target)
        failpoints.here("state.backup.after")


def restore(source: Path, url: str, *, now: datetime) -> Path | None:
    """Put a copy of the backup ``source`` in the place of the SQLite database at ``url``, which
    nobody has open.

    It is checked before anything is moved. Whoever is interrupted in between finds the database
    missing, never half of it, and may restore again. Its revisions go on in a new epoch.

    Returns:
        Where the replaced database was moved, or ``None`` if there was none.

    Raises:
        InvalidRequest: ``url`` names no file of SQLite; for PostgreSQL the hint is the command that
            does it.
        NotFound: There is no file ``source``.
        Damaged: It is no whole database of ours.
        Conflict: A newer version of Cloud ML has written it.
        OutOfSpace: The disk is full or read-only.
        Unavailable: ``source`` or the place of the database cannot be read or written.
    """
    target = _file_of(url, lambda database: _load_command(database, source))
    _check_source(source)
    with sqlite.translated(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with drafts.draft_of(target) as draft:
            _fetch(source, draft)
            version = _version_of_whole(draft, source, replaced=target)
            migrations.check_not_newer(version, name=str(source))
            _begin_epoch(draft, replaced=target)
            _give(draft, to_owner_of=target.parent)
            sqlite.sync(draft)
            failpoints.here("state.restore.before")
            aside = _move_aside(target, f"{target.name}.replaced-{now:%Y%m%dT%H%M%SZ}")
            sqlite.sync(target.parent)  # or a power cut could leave the old log beside the new file
            failpoints.here("state.restore.aside")
            target.hardlink_to(draft)
            sqlite.sync(target.parent)
            failpoints.here("state.restore.after")
    return aside


def _check_target(target: Path) -> None:
    if target.is_dir():
        raise InvalidRequest(
            f"{target} is a folder",
            field="target",
            value=str(target),
            allowed="the path of a new file",
            hint=f"Name a file in it: {target / 'cloud-ml.db'}",
        )
    if not target.parent.is_dir():
        raise NotFound(
            f"there is no folder {target.parent}",
            field="target",
            value=str(target),
            allowed="the path of a new file in a folder that exists",
        )


def _create(draft: Path, target: Path) -> None:
    """Make the empty file of a backup.

    Raises:
        InvalidRequest: Files cannot be made beside ``target``, for another reason than its disk.
    """
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise InvalidRequest(
            f"no file can be created in {target.parent} ({error.strerror})",
            field="target",
            value=str(target),
            allowed="the path of a new file in a folder that this user may write to",
        ) from error


def _check_source(source: Path) -> None:
    if not source.is_file():
        problem = f"{source} is a folder" if source.is_dir() else f"there is no file {source}"
        raise NotFound(problem, field="source", value=str(source), allowed="the file of a backup")


def _version_of_whole(draft: Path, source: Path, *, replaced: Path) -> str | None:
    """The schema of the backup ``source``, of which ``draft`` is a copy that is to take the place
    of ``replaced``.

    Raises:
        Damaged: It is not whole.
    """
    try:
        with sqlite.translated(source):
            return sqlite.check(draft, pages=True, name=str(source))
    except Damaged as error:
        unchanged = "The server's database is unchanged. " if replaced.exists() else ""
        raise Damaged(error.message, hint=f"{unchanged}Restore another backup.") from error


def _begin_epoch(draft: Path, *, replaced: Path) -> None:
    """Have a restored database go on with revisions that the replaced one cannot have given out."""
    with closing(sqlite3.connect(draft)) as database:
        with database:
            revision, event = database.execute("SELECT revision, event FROM counters").fetchone()
            epoch = epochs.next_epoch(revision, event, *_counters_of(replaced))
            values = (epochs.moved_to(epoch, revision), epochs.moved_to(epoch, event))
            database.execute("UPDATE counters SET revision = ?, event = ?", values)
        # Only the database file gets the name, so its log must be empty.
        database.execute(sqlite.MOVE_LOG)


def _counters_of(path: Path) -> tuple[int, ...]:
    """The counters of a database that is about to be replaced; nothing where it cannot be read."""
    if not path.exists():
        return ()
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
            found: tuple[int, ...] = (
                database.execute("SELECT revision, event FROM counters").fetchone() or ()
            )
            return found
    except sqlite3.Error:
        return ()


def _fetch(source: Path, draft: Path) -> None:
    """Copy a database and, if it was not closed in order, its log; ``source`` may be on a
    read-only disk.
    """
    for suffix in ("", "-wal"):
        original, copy = (path.with_name(path.name + suffix) for path in (source, draft))
        if original.exists():
            os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            shutil.copyfile(original, copy)


def _give(file: Path, *, to_owner_of: Path) -> None:
    """Root may restore for a server that runs as somebody else, who must be able to read the
    result.
    """
    if os.geteuid() == 0:
        owner = to_owner_of.stat()
        os.chown(file, owner.st_uid, owner.st_gid)


def _move_aside(path: Path, name: str) -> Path | None:
    """Rename a database and its log; the file first: without it, nobody takes the log for a
    whole database.
    """
    aside = None
    for suffix in ("", "-wal"):
        if (file := path.with_name(path.name + suffix)).exists():
            aside = path.with_name(name)
            file.rename(path.with_name(name + suffix))
    # Remove the index of the log: SQLite rebuilds it, and the index of another file would be
    # wrong.
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    return aside


def _file_of(url: str, command: Callable[[URL], str]) -> Path:
    """The file of a SQLite database.

    Raises:
        InvalidRequest: It is none; ``command`` says what does it for a database of PostgreSQL.
    """
    _, parsed = dialect_of(url)
    if parsed.get_backend_name() != "sqlite":
        raise InvalidRequest(
            "the database is PostgreSQL's, whose own programs copy it",
            field="server.database_url",
            value=_without_password(parsed),
            allowed="a file of SQLite",
            hint=f"Run: {command(parsed)}",
        )
    return sqlite.path_of(parsed)


def _dump_command(url: URL, target: Path) -> str:
    return shlex.join(
        ["pg_dump", "--format=custom", f"--file={target}", f"--dbname={_without_password(url)}"]
    )


def _load_command(url: URL, source: Path) -> str:
    """Into a database without our tables: what is there is not overwritten. Then its new epoch
    begins.
    """
    database = f"--dbname={_without_password(url)}"
    load = ["pg_restore", "--single-transaction", "--no-owner", database, str(source)]
    begin = ["psql", database, f"--command={epochs.NEXT_EPOCH}"]
    return f"{shlex.join(load)} && {shlex.join(begin)}"


def _without_password(url: URL) -> str:
    """The URL as libpq's programs take it; they find the password where we do, in ``~/.pgpass``
    or PGPASSWORD.
    """
    query = {
        word: value for word, value in url.query.items() if word not in ("password", "sslpassword")
    }
    bare = URL.create("postgresql", url.username, None, url.host, url.port, url.database, query)
    return bare.render_as_string().replace("%2F", "/")


def _copy(source: Path, draft: Path) -> None:
    with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(draft)) as copy:
        try:
            # All pages in one step: in steps, the copy would start again at each commit of
            # somebody else.
            original.backup(copy, pages=-1)
        except sqlite3.DatabaseError as error:
            found = translate(error, str(source))
            if isinstance(found, Damaged):
                raise found from error
            raise


def _put_in_place(draft: Path, target: Path) -> None:
    try:
        # link(2) fails if the file exists; rename(2) would replace it.
        target.hardlink_to(draft)
    except FileExistsError as error:
        raise AlreadyExists(
            f"there is a file {target} already",
            field="target",
            value=str(target),
            allowed="a path that is free",
        ) from error
    sqlite.sync(target.parent)
