"""Files of a folder that somebody else may have made: no link is followed, no device is read."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from cloud_ml.cli.display.yamls import load
from cloud_ml.errors import Conflict, InvalidRequest

META = "meta.yaml"
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


def folders_in(folder: Path) -> Iterator[Path]:
    """The folders of a folder by their names. Links and hidden ones are left out."""
    if folder.is_dir() and not folder.is_symlink():
        for each in sorted(folder.iterdir()):
            if each.is_dir() and not each.is_symlink() and not each.name.startswith("."):
                yield each


def is_name(part: str) -> bool:
    """Whether this names something in a folder: it does not lead out of it."""
    return part not in ("", ".", "..") and "/" not in part and "\0" not in part


def read_meta(folder: Path) -> Mapping[str, Any] | None:
    """The description of what a folder is; ``None`` if there is none, or it is deleted."""
    path = folder / META
    if not path.is_file():
        return None
    try:
        meta = load(read_small(path))
    except ValueError as error:
        raise unreadable(path, str(error)) from error
    if not isinstance(meta, Mapping):
        raise unreadable(path, "it is no mapping")
    return meta if meta.get("lifecycle_stage", "active") == "active" else None


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes of this machine from the same block for this file or folder.

    Raises:
        Conflict: One is in it.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Conflict(
                    f"another import of {path} is under way", field="store", value=str(path),
                    hint="Wait for its end, and repeat this: what is there already is left alone.",
                ) from None  # fmt: skip
        yield
    finally:
        os.close(descriptor)
