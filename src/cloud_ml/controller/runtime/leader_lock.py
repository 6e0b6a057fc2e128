"""The lock of the leader among servers of one machine: it tells at once that a leader is dead."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)


class LeaderLock:
    """A lock on a file, which the kernel frees when its process ends, however that ends.

    It does not decide who leads: the lease does. A leader that hangs keeps the lock and loses the
    lease.

    Args:
        path: The file; made if need be. Its folder is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def file_number(self) -> int:
        """Tells the file from one that was made after its removal; only while the lock is held."""
        assert self._descriptor is not None
        return os.fstat(self._descriptor).st_ino

    def take(self) -> bool:
        """Take the lock; false if another process has it, or the file cannot be opened."""
        if self._descriptor is not None:
            return True
        try:
            # With O_CLOEXEC: a child that inherits the file would hold the lock after this process.
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            logger.warning("%s cannot be opened: %s", self._path, error.strerror)
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back."""
        # The file stays: who waits for its lock has it open, and would lock a file without a name.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
