"""Folders that are made for a job where its code can write. No link is followed: this process may
have more rights than the job.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """A folder that the platform has made, as a descriptor."""
    descriptor = os.open(folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def make_folder(name: str, parent: int, user: tuple[int, int] | None) -> Iterator[int | None]:
    """A folder of the ``user`` (uid, gid), made if nothing has this name; ``None`` if something
    else has it.
    """
    fresh = False
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        fresh = True
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except OSError:
        yield None
        return
    try:
        if fresh and user is not None:
            # Use the descriptor: the job may have replaced the name by now.
            os.fchown(descriptor, *user)
        yield descriptor
    finally:
        os.close(descriptor)


def make_below(folder: Path, names: Sequence[str], user: tuple[int, int] | None) -> bool:
    """Make the folder ``names`` below ``folder``, with those between; whether it is there.

    Raises:
        OSError: The disk is full, or the folder is gone.
    """
    with contextlib.ExitStack() as stack:
        parent: int | None = stack.enter_context(open_folder(folder))
        for name in names:
            if parent is None:
                return False
            parent = stack.enter_context(make_folder(name, parent, user))
        return parent is not None


def remove_empty(folder: Path, names: Sequence[str]) -> None:
    """Remove the folder ``names`` below ``folder`` if nothing is in it. Those between stay: another
    job may be about to use them.
    """
    *between, last = names
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        parent = stack.enter_context(open_folder(folder))
        for name in between:
            parent = os.open(name, _FOLDER, dir_fd=parent)
            stack.callback(os.close, parent)
        os.rmdir(last, dir_fd=parent)
