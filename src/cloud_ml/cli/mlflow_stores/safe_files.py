"""Files of a folder that somebody else may have made: no link is followed, no device is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from cloud_ml.errors import InvalidRequest

SMALL_BYTES = 1024 * 1024
"""A description, a parameter or a tag is no larger."""


def open_regular(path: Path) -> BinaryIO:
    """Open a file that is no link, pipe or device.

    Raises:
        InvalidRequest: It is, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise unreadable(path, "it is no file")
    return os.fdopen(descriptor, "rb")


def read_small(path: Path) -> str:
    """The text of a small file.

    Raises:
        InvalidRequest: It is none, or cannot be read.
    """
    with open_regular(path) as file:
        content = file.read(SMALL_BYTES + 1)
    if len(content) > SMALL_BYTES:
        raise unreadable(path, f"it has more than {SMALL_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise unreadable(path, "it is not UTF-8") from error


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of a folder by their path below it, in the order of that. Links are left out."""
    found: list[tuple[str, Path]] = []
    for at, folders, files in () if folder.is_symlink() else os.walk(folder):
        folders[:] = [name for name in folders if not (Path(at) / name).is_symlink()]
        for name in files:
            path = Path(at) / name
            if path.is_file() and not path.is_symlink():
                found.append((path.relative_to(folder).as_posix(), path))
    yield from sorted(found)


def links_below(folder: Path) -> int:
    """How many links a folder has."""
    return sum(
        (Path(at) / name).is_symlink()
        for at, folders, files in os.walk(folder)
        for name in (*folders, *files)
    )


def unreadable(path: Path, why: str) -> InvalidRequest:
    """What is raised where a file cannot be read."""
    return InvalidRequest(f"{path} cannot be read: {why}", field="path", value=str(path))
