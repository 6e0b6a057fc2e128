"""Locks of buckets: nobody makes or removes one while another does. They die with their process.

A lock is one of a fixed number of files, chosen by the bucket's name. So a lock needs no space on a
full disk, and names that come and go leave nothing. Two buckets that share a file only wait for
each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from cloud_ml.errors import Unavailable
from cloud_ml.objects.local import tree

_FILES = 64
_POLL_S = 0.005


class BucketLocks:
    """The lock files below ``folder``, which no job sees.

    Args:
        folder: Made if need be, with its files.
        limit_s: How long a caller waits for others.
    """

    def __init__(self, folder: Path, limit_s: float) -> None:
        self._folder = folder
        self._limit_s = limit_s
        # A read-only disk has these lock files already, or creates no buckets.
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            for number in range(_FILES):
                os.close(self._open(number))

    @contextlib.contextmanager
    def held(self, bucket: str, *, shared: bool) -> Iterator[None]:
        """Hold the lock of a bucket.

        Raises:
            Unavailable: Others held it for longer than the limit.
        """
        with tree.translate_errors(bucket):
            descriptor = self._open(zlib.crc32(bucket.encode("utf-8", "replace")) % _FILES)
        try:
            self._wait(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, bucket)
            yield
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int, operation: int, bucket: str) -> None:
        until = time.monotonic() + self._limit_s
        while True:
            try:
                fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise Unavailable(
                        f"the bucket {bucket[:63]} is being made or removed by others",
                        hint="try again",
                    ) from None
                # flock(2) has no time limit, so it is asked again and again.
                time.sleep(_POLL_S)
            else:
                return

    def _open(self, number: int) -> int:
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._folder / f"{number:02d}", flags, 0o600)
