"""The sum of the sizes that an organisation's folder of ended jobs notes, kept beside the folder.

To list the folder for each start costs a start the more, the more jobs have ended. The sum is
changed under a lock. While somebody changes it, it is marked as unknown: whoever finds that mark
under the lock follows a process that was killed, and counts again. So does everybody after a restart
of the machine, and where somebody else has changed the folder, such as a process of an older
version.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_LONGEST = 200
_MODE = 0o600


class KeptDiskSum:
    """The sum of one folder.

    Args:
        folder: The folder whose names are counted.
        file: Where the sum is kept.
        boot: Changes when the machine restarts: what was not on the disk by then is lost.
        count: Counts the folder.
    """

    def __init__(self, folder: Path, file: Path, boot: str, count: Callable[[], int]) -> None:
        self._folder = folder
        self._file = file
        self._boot = boot
        self._count = count

    def read(self) -> int:
        """The sum."""
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            descriptor = -1
        if descriptor >= 0:
            try:
                # Wait for a process that is changing the folder: it has marked the sum as
                # unknown.
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                known = self._known(descriptor)
            finally:
                os.close(descriptor)
            if known is not None:
                return known
        return self._count_again()

    @contextlib.contextmanager
    def changing(self) -> Iterator[list[int]]:
        """Hold the lock while the folder is changed. The caller appends how much the sum grows.

        Raises:
            OSError: The disk is full. The folder may be changed all the same.
        """
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            known = self._known(descriptor)
            os.ftruncate(descriptor, 0)  # unknown, until it is written again
            changes: list[int] = []
            yield changes
            # Not reached after an error or a kill: the sum stays unknown then, and the next one
            # counts.
            if known is not None:
                self._write(descriptor, known + sum(changes))
        finally:
            os.close(descriptor)

    def _count_again(self) -> int:
        """Count the folder; note the sum for others, if the disk has room for it."""
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError:
            return self._count()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            known = self._known(descriptor)  # somebody else may have counted meanwhile
            if known is not None:
                return known
            changed = self._changed_at()
            total = self._count()
            # A process of an older version may have changed the folder without the lock.
            if changed == self._changed_at():
                with contextlib.suppress(OSError):
                    self._write(descriptor, total)
            return total
        finally:
            os.close(descriptor)

    def _known(self, descriptor: int) -> int | None:
        words = os.pread(descriptor, _LONGEST, 0).split()
        if words[:2] != [self._boot.encode(), self._changed_at()] or len(words) != 3:
            return None
        return int(words[2])

    def _write(self, descriptor: int, total: int) -> None:
        words = b" ".join([self._boot.encode(), self._changed_at(), b"%d\n" % total])
        # An empty file means that the sum is unknown, so a kill between these two lines is
        # harmless.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, words, 0)

    def _changed_at(self) -> bytes:
        try:
            return b"%d" % self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return b"0"
