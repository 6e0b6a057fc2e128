"""Who uses what was built: a shared lock for each folder, held as long as a process needs it.

The lock lies beside the folder (``.<name>.used``) and its time tells when the folder was last asked
for. The system frees it when its holder dies, so a crash keeps nothing alive. Whoever removes a
folder needs the lock alone, and has renamed the folder before the lock is free again: a folder
whose lease is held is whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


class Leases:
    """Leases of one process. ``close`` ends them; so does the end of the process."""

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def take(self, folder: Path) -> bool:
        """Hold ``folder``; false if it is not there. Waits while it is being removed."""
        while folder not in self._held:
            if not os.path.isdir(folder):  # noqa: PTH112 - several at each start of a job
                return False
            descriptor = _open(folder)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            # Check under the lock: the folder or the lock file may have been removed while
            # waiting.
            if os.path.isdir(folder) and _is_current(descriptor, folder):  # noqa: PTH112
                os.utime(descriptor)
                self._held[folder] = descriptor
            else:
                os.close(descriptor)
        return True

    def take_all(self, folders: Iterable[Path]) -> bool:
        """Hold all of them; false if one is not there."""
        return all(self.take(folder) for folder in folders)

    def close(self) -> None:
        """Let go of everything."""
        while self._held:
            os.close(self._held.popitem()[1])


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether nobody holds ``folder``; if so nobody gets it during the block."""
    descriptor = _open(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def last_used(folder: Path) -> float:
    """When ``folder`` was last taken, else when it was made; seconds since the epoch."""
    with contextlib.suppress(OSError):
        return _file(folder).stat().st_mtime
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _file(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.used")


def _is_current(descriptor: int, folder: Path) -> bool:
    """Whether the file that was locked is still the one that others will lock."""
    try:
        return os.path.samestat(os.fstat(descriptor), _file(folder).stat())
    except OSError:
        return False


def _open(folder: Path) -> int:
    return os.open(_file(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
