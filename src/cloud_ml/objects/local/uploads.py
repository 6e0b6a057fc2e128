"""Where uploads grow until they are whole: beside the buckets, on their file system, unseen by
jobs.

Each file is locked by its writer. The lock dies with the process, so at its start a store can tell
what a crash has left from what another server is writing at this moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class UploadFile:
    """An upload under way: its open, locked file and the file's name."""

    descriptor: int
    name: bytes


class Uploads:
    """The folder of unfinished uploads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self) -> UploadFile:
        """A new, empty, locked file."""
        while True:
            name = secrets.token_hex(16).encode()
            descriptor = os.open(
                self.path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
            )
            # Between its making and its locking, a server that starts may take the file for a
            # leftover.
            if _lock(descriptor) and os.fstat(descriptor).st_nlink:
                return UploadFile(descriptor, name)
            os.close(descriptor)

    def adopt(self, descriptor: int, path: Path, bucket: str, upload: str) -> UploadFile:
        """A second name, here, for a file that is open, locked by that, and has no other name than
        ``path``.

        Bucket and id of the upload are in the name, so that another server finds it after a crash.
        """
        name = _adopted_name(bucket, upload)
        # Left by an upload of this id that was cut off by a crash and dropped later.
        self.path(name).unlink(missing_ok=True)
        os.link(path, self.path(name), follow_symlinks=False)
        return UploadFile(descriptor, name)

    def discard_adopted(self, bucket: str, upload: str, descriptor: int | None = None) -> None:
        """Remove the second name of an upload's file that a crash has left; with ``descriptor``
        only of that file.

        Only with the lock of the file, or of the upload.
        """
        path = self.path(_adopted_name(bucket, upload))
        with contextlib.suppress(OSError):
            if descriptor is None or os.path.samestat(path.lstat(), os.fstat(descriptor)):
                path.unlink()

    def discard(self, upload: UploadFile) -> None:
        """Forget an upload; its file may have moved on to its place already."""
        with contextlib.suppress(OSError):  # what a read-only disk keeps, the next start removes
            self.path(upload.name).unlink()
        os.close(upload.descriptor)

    def sweep(self) -> None:
        """Remove what crashed servers have left; files in use stay. A read-only disk is left as
        it is.
        """
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if _lock(descriptor):
                        path.unlink()
                finally:
                    os.close(descriptor)

    def path(self, name: bytes) -> Path:
        """Where the file of an upload lies."""
        return self.folder / name.decode()


def _adopted_name(bucket: str, upload: str) -> bytes:
    return f"join.{bucket}.{upload}".encode()


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
