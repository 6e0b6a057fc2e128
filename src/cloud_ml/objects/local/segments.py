"""Uploads whose bytes are appended segment by segment: one growing file, and how much of it was
received.

The size and the running SHA-256 of what was received stand in the name of an empty file, which is
renamed when a segment is complete. Bytes behind that size are left over from an interrupted
segment. Nothing is flushed to the disk before the object is: after a power failure the file may be
shorter or damaged, so a process that does not know the running digest reads the file again and
compares.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cloud_ml import failpoints
from cloud_ml.errors import Conflict, NotFound, Unavailable
from cloud_ml.objects.local import tree
from cloud_ml.objects.local.uploads import Uploads
from cloud_ml.objects.multipart import Received, SegmentWriter, check_offset, no_upload

if TYPE_CHECKING:
    from hashlib import _Hash

_MARK = re.compile(r"received\.([0-9]{1,19})\.([0-9a-f]{64})")
_CONTENT = "content"
_BLOCK = 1 << 20
_WRITE_BACK_BYTES = 8 << 20
_STATES = 1024
"""Running digests that are remembered; each takes some 200 bytes."""

KeepSegment = Callable[["SegmentFile", Received, int], None]
"""Notes what an upload has received; the last argument is the open file that holds it."""


class RunningDigests:
    """The states of SHA-256 of uploads under way, so that what was received is not read again.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[tuple[str, str], _Hash] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, bucket: str, upload: str, received: Received) -> _Hash | None:
        """A copy of the state behind what was received, if it is known."""
        with self._lock:
            state = self._states.get((bucket, upload))
        return state.copy() if state is not None and state.hexdigest() == received.sha256 else None

    def remember(self, bucket: str, upload: str, state: _Hash) -> None:
        """Keep a state; the oldest goes where there are too many."""
        with self._lock:
            self._states[bucket, upload] = state.copy()
            self._states.move_to_end((bucket, upload))
            if len(self._states) > _STATES:
                self._states.popitem(last=False)

    def forget(self, bucket: str, upload: str) -> None:
        """The upload is over."""
        with self._lock:
            self._states.pop((bucket, upload), None)


class SegmentFile:
    """The file of one upload.

    Args:
        folder: That of the upload.
        bucket: Where the object is to be.
        upload: The id of the upload.
        digests: What is known of what was received.
        drafts: Where the file has a second name while it becomes an object.
    """

    def __init__(
        self, folder: Path, bucket: str, upload: str, digests: RunningDigests, drafts: Uploads
    ) -> None:
        self.path = folder / _CONTENT
        self.bucket = bucket
        self.upload = upload
        self._folder = folder
        self._digests = digests
        self._drafts = drafts

    def open_locked(self, *, create: bool = False) -> int:
        """The open file, which nobody else writes to until it is closed.

        Whoever joins the segments holds this lock, too. So a second name beside it is left over
        from a server that was killed before the object was placed: it goes, and the upload goes on.

        Raises:
            NotFound: The upload is over: dropped, or its file is an object already.
            Unavailable: A segment is on its way.
        """
        flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            raise no_upload(self.upload) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink > 1:
                self._drafts.discard_adopted(self.bucket, self.upload, descriptor)
            # Under the lock: the file may have been placed or removed between open and lock.
            over = os.fstat(descriptor).st_nlink != 1
        except BlockingIOError:
            os.close(descriptor)
            raise Unavailable(
                "another segment of this upload is on its way",
                field="upload",
                value=self.upload,
                hint="try again",
            ) from None
        if over:
            os.close(descriptor)
            raise no_upload(self.upload)
        return descriptor

    def is_placed(self) -> bool:
        """Whether the file is an object already, or gone. Only with the lock of the upload."""
        try:
            descriptor = self.open_locked()
        except NotFound:
            return True
        except Unavailable:
            return False
        os.close(descriptor)
        return False

    def received(self) -> Received:
        """What was received; nothing where no segment has come."""
        mark = self._mark()
        return Received(int(mark[1]), mark[2]) if mark is not None else Received()

    def mark(self, received: Received) -> None:
        """Say how much was received. Only with the lock of the upload."""
        before, now = self._mark(), self._folder / f"received.{received.size}.{received.sha256}"
        if before is not None:
            (self._folder / before[0]).rename(now)
        else:
            now.touch(mode=0o600)

    def holds(self, descriptor: int) -> bool:
        """Whether an open file is this upload's still: another upload of the same id has another
        file.
        """
        ours = os.fstat(descriptor)
        with contextlib.suppress(FileNotFoundError):
            there = self.path.stat(follow_symlinks=False)
            return ours.st_nlink == 1 and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
        return False

    def verified(self, descriptor: int, received: Received) -> _Hash:
        """The state of SHA-256 behind what was received, which is proven to be in the open file.

        Raises:
            Conflict: The file was damaged, as by a power failure. It begins again then.
        """
        known = self._digests.find(self.bucket, self.upload, received)
        if known is not None and os.fstat(descriptor).st_size >= received.size:
            return known
        state, position = hashlib.sha256(), 0
        while position < received.size:
            block = os.pread(descriptor, min(_BLOCK, received.size - position), position)
            if not block:
                break
            state.update(block)
            position += len(block)
        if state.hexdigest() != received.sha256:
            self._unmark()
            raise Conflict(
                "what was received of this upload was damaged, as by a power failure; it "
                "begins again",
                field="upload",
                value=self.upload,
                hint="send it again from byte 0",
            )
        self._digests.remember(self.bucket, self.upload, state)
        return state

    def _mark(self) -> re.Match[str] | None:
        with contextlib.suppress(FileNotFoundError):
            found = (_MARK.fullmatch(name) for name in os.listdir(self._folder))  # noqa: PTH208 - names are all that is wanted
            return next((match for match in found if match is not None), None)
        return None

    def _unmark(self) -> None:
        if (mark := self._mark()) is not None:
            (self._folder / mark[0]).unlink(missing_ok=True)


class LocalSegmentWriter(SegmentWriter):
    """A segment on its way. It holds the lock of the upload's file.

    Raises:
        NotFound: The upload is over.
        Conflict: See ``MultipartUploads.append``.
        Unavailable: Another segment is on its way.
    """

    def __init__(
        self, offset: int, file: SegmentFile, digests: RunningDigests, keep: KeepSegment
    ) -> None:
        self._file = file
        self._digests = digests
        self._keep = keep
        self._offset, self._kept = offset, True  # until the file is ours, it is left as it is
        with tree.translate_errors(file.upload):
            self._descriptor = file.open_locked(create=True)
            try:
                received = file.received()
                check_offset(offset, received)
                self._state = file.verified(self._descriptor, received)
                os.ftruncate(self._descriptor, offset)
                os.lseek(self._descriptor, offset, os.SEEK_SET)
            except BaseException:
                self.abort()
                raise
        self._size = self._flushed = offset
        self._kept = False

    @property
    def sha256(self) -> str:
        return self._state.hexdigest()

    def write(self, chunk: bytes) -> None:
        if self._descriptor < 0:
            raise ValueError("the segment is over")
        left = memoryview(chunk)
        self._state.update(chunk)
        self._size += len(chunk)
        try:
            with tree.translate_errors(self._file.upload):
                while left:
                    left = left[os.write(self._descriptor, left) :]
        except BaseException:
            self.abort()
            raise
        if self._size - self._flushed >= _WRITE_BACK_BYTES:
            # Begins to write to the disk what was received, which is to be there in the end: the
            # next bytes come meanwhile. The kernel would wait until much more has gathered.
            os.posix_fadvise(
                self._descriptor, self._flushed, self._size - self._flushed, os.POSIX_FADV_DONTNEED
            )
            self._flushed = self._size

    def commit(self) -> Received:
        if self._descriptor < 0:
            raise ValueError("the segment is over")
        received = Received(self._size, self.sha256)
        try:
            failpoints.here("objects.segment.before")
            self._keep(self._file, received, self._descriptor)
            self._kept = True
            self._digests.remember(self._file.bucket, self._file.upload, self._state)
            failpoints.here("objects.segment.after")
            return received
        finally:
            self.abort()

    def abort(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if not self._kept:
            # Cut off these bytes: no quota counts them.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._offset)
        os.close(descriptor)
