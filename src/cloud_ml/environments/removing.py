"""Folders that strangers have filled, removed: of any depth and size, and without following a link.

``shutil.rmtree`` calls itself for each level, so a folder a thousand deep, which costs a job
nothing, raises ``RecursionError`` out of it. Here every subfolder is moved up to the top and
emptied there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_ROUNDS = 3
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CLOSED_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For one that its owner may not read either."""


def remove(path: Path) -> None:
    """Remove a folder and all below it; absent is fine, and what cannot be removed stays."""
    with contextlib.suppress(OSError):
        if not path.is_dir() or path.is_symlink():
            path.unlink()
            return
        for _ in range(_ROUNDS):
            with _open_folder(path) as top:
                _empty_wholly(top)
            # Not empty: scandir skipped a name while others were removed, or another process adds
            # files.
            with contextlib.suppress(OSError):
                path.rmdir()
                return


def _empty_wholly(top: int) -> None:
    prefix, number = f".{os.urandom(8).hex()}.", 0
    while subfolders := _empty(top):
        before = number
        for name in subfolders:
            number = _flatten(top, name, prefix, number)
        if number == before and _empty(top) == subfolders:
            return  # it may not be touched


def _flatten(top: int, name: str, prefix: str, number: int) -> int:
    """Move the subfolders of a subfolder up to the top and remove it; returns the last number
    that was given.
    """
    with contextlib.suppress(OSError):
        with _open_folder(name, top) as folder:
            for below in _empty(folder):
                with contextlib.suppress(OSError):
                    _move(folder, below, top, f"{prefix}{number + 1}")
                    number += 1
        os.rmdir(name, dir_fd=top)
    return number


def _move(source: int, name: str, target: int, new_name: str) -> None:
    """Move a folder, also one that is closed: its entry ``..`` changes, so its owner must be
    able to write to it.
    """
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:
        with _open_folder(name, source):
            os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)


def _empty(folder: int) -> list[str]:
    """Remove all but subfolders, whose names are returned."""
    subfolders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                subfolders.append(entry.name)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.name, dir_fd=folder)
    return subfolders


@contextlib.contextmanager
def _open_folder(path: Path | str, folder: int | None = None) -> Iterator[int]:
    """A folder, open meanwhile, and open to its owner again, whatever its mode was."""
    try:
        descriptor = os.open(path, _FOLDER, dir_fd=folder)
    except PermissionError:
        _open_to_owner(path, folder)
        descriptor = os.open(path, _FOLDER, dir_fd=folder)
    try:
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o700)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_to_owner(path: Path | str, folder: int | None) -> None:
    """Open the mode of a folder. Never that of what a link leads to: a process of the folder's owner
    may put one in its place at any moment, and a change of mode by name would follow it.
    """
    descriptor = os.open(path, _CLOSED_FOLDER, dir_fd=folder)
    try:
        Path(f"/proc/self/fd/{descriptor}").chmod(0o700)
    finally:
        os.close(descriptor)
