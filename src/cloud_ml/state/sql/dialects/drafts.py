"""Databases that are not whole yet: under a name of their own, which tells who is at work on them.

Whoever is killed leaves one behind, as large as a database. The next one to look removes it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A name beside ``path`` to make a database under; what is there at the end is removed."""
    clear_leftovers(path)
    pid = os.getpid()
    draft = path.with_name(f".{path.name}.{pid}-{_start_of(pid)}-{uuid.uuid4().hex}")
    try:
        yield draft
    finally:
        _remove(draft)


def clear_leftovers(path: Path) -> None:
    """Remove drafts of the database ``path`` whose maker is gone."""
    prefix = f".{path.name}."
    with suppress(OSError):  # no such folder, or a disk that can only be read
        for name in os.listdir(path.parent):  # noqa: PTH208
            pid, _, start = name.removeprefix(prefix).rpartition("-")[0].partition("-")
            if name.startswith(prefix) and pid.isdigit() and _start_of(int(pid)) != start:
                path.with_name(name).unlink(missing_ok=True)


def _remove(path: Path) -> None:
    """Remove a database and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _start_of(pid: int) -> str:
    """When a process started, in ticks since the boot; empty if there is none."""
    with suppress(OSError):
        return (
            Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
        )
    return ""
