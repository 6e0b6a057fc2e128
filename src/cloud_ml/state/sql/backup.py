"""Copies of a database, taken while it is in use."""

from __future__ import annotations

import os
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url

from cloud_ml.errors import AlreadyExists
from cloud_ml.state.sql.dialects import sqlite


def backup(url: str, target: Path) -> None:
    """Write a whole, checked copy of the SQLite database at ``url`` to ``target``.

    The copy shows one moment: every commit acknowledged before the call is in it. Writers go on
    meanwhile. ``target`` appears when it is complete and on disk, readable by its owner alone.

    Raises:
        InvalidRequest: ``url`` names no file of SQLite.
        AlreadyExists: There is something at ``target``.
        Damaged: The database, or what was copied of it, is damaged.
        OutOfSpace: The disk of ``target`` is full or read-only.
        Unavailable: The database or the folder of ``target`` cannot be read.
    """
    source = sqlite.path_of(make_url(url))
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    with sqlite.translated(source):
        source.stat()  # SQLite would make a missing file
    with sqlite.translated(target):
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            _copy(source, draft)
            sqlite.check(draft, pages=True)
            sqlite.sync(draft)
            _put_in_place(draft, target)
        finally:
            sqlite.remove(draft)


def _copy(source: Path, draft: Path) -> None:
    with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(draft)) as copy:
        # All pages in one step: in steps, the copy would start again at each commit of somebody else.
        original.backup(copy, pages=-1)


def _put_in_place(draft: Path, target: Path) -> None:
    try:
        target.hardlink_to(draft)
    except FileExistsError as error:
        raise AlreadyExists(
            f"there is a file {target} already", field="target", value=str(target), allowed="a path that is free"
        ) from error
    sqlite.sync(target.parent)
