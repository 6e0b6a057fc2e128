"""Folders of packages that may not be on the disk yet: forcing thousands of files there would cost
a job seconds.

So a folder is marked before it is built. When the system has had time to write it out anyway, that
is made sure of, and the mark goes. A mark that is older than the start of the machine tells of a
power cut: what it speaks of may be whole by its names and torn inside, and so may what ``uv`` has
kept of the same packages.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_MARK, _SETTLING = ".unsettled", ".settling"
_KINDS = ("layers", "tenants/*/layers", "tenants/*/trainers")
_RIPE_S = 60.0
"""The system writes out within half of that by itself."""


def mark(folder: Path) -> None:
    """Note, durably, that ``folder`` is about to be built, or to get its name.

    Only the name of the mark is forced to the disk: one that has lost its words in a power cut is
    older than the start of the machine, too, and is not taken for a newer one.
    """
    path = folder.with_name(f".{folder.name}{_MARK}")
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            os.write(descriptor, boot_id())
        finally:
            os.close(descriptor)
        _force(folder.parent)


def settle(home: Path, ripe_s: float = _RIPE_S) -> int:
    """Have what was built some time ago on the disk, and forget its marks; returns how many."""
    aside = []
    for path in _marks(home, _MARK):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime <= time.time() - ripe_s:
                # Out of the way first: who marks the same folder from here on may write what is not
                # forced below.
                aside.append(path.rename(path.with_name(path.name.removesuffix(_MARK) + _SETTLING)))
    if aside:
        _force_all(home)
    for path in aside:
        path.unlink(missing_ok=True)
    return len(aside)


def doubtful(home: Path) -> Iterator[tuple[Path, Path]]:
    """The folders that a power cut may have torn, each with its mark, to be unlinked when the
    folder is gone.
    """
    now = boot_id()
    for suffix in (_MARK, _SETTLING):
        for path in _marks(home, suffix):
            if path.read_bytes() != now:
                yield path.with_name(path.name[1:].removesuffix(suffix)), path


def boot_id() -> bytes:
    """Changes when the machine restarts."""
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()


def _marks(home: Path, suffix: str) -> Iterator[Path]:
    for kind in _KINDS:
        yield from home.glob(f"{kind}/.*{suffix}")


def _force(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _force_all(folder: Path) -> None:
    """Wait until everything on the file system of ``folder`` is on the disk."""
    import ctypes  # noqa: PLC0415 -- once a minute; every build imports this module

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "syncfs failed")
    finally:
        os.close(descriptor)
