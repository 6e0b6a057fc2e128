"""Bytes on their way out of and into a bucket."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloud_ml import failpoints
from cloud_ml.errors import AlreadyExists, CloudMlError, Conflict, NotFound, OutOfSpace, Unavailable
from cloud_ml.objects.base import ObjectWriter
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.objects.local import tree
from cloud_ml.objects.local.noted import Notes
from cloud_ml.objects.local.uploads import UploadFile, Uploads

if TYPE_CHECKING:
    from hashlib import _Hash

CHUNK = 1 << 18
_HOLE = 1 << 16
_LAST_SECOND = 253_402_300_799  # of the year 9999; a job may set any time it likes


def object_info(bucket: str, key: str, status: os.stat_result) -> ObjectInfo:
    """Facts of an object from its file's status."""
    seconds = min(max(status.st_mtime, 0), _LAST_SECOND)
    etag = f"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ino:x}"
    return ObjectInfo(bucket, key, status.st_size, datetime.fromtimestamp(seconds, UTC), etag)


class Chunks(Iterator[bytes]):
    """A piece of an open file. The file is closed at the end, by ``close``, or with the last
    reference.
    """

    def __init__(self, descriptor: int, name: str, start: int, length: int) -> None:
        self._descriptor = descriptor
        self._name = name
        self._position = start
        self._end = start + length

    def __next__(self) -> bytes:
        left = self._end - self._position
        if left <= 0 or self._descriptor < 0:
            self.close()
            raise StopIteration
        chunk = os.pread(self._descriptor, min(CHUNK, left), self._position)
        if not chunk:
            self.close()
            raise Unavailable(f"{self._name} was cut short while it was read", hint="read it again")
        self._position += len(chunk)
        return chunk

    def close(self) -> None:
        """Let go of the file; harmless twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class Folders:
    """Folders whose names are to be on the disk, each once however many names it got."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], int] = {}

    def add(self, folder: int) -> None:
        """Remember an open folder."""
        status = os.fstat(folder)
        if (place := (status.st_dev, status.st_ino)) not in self._open:
            self._open[place] = os.dup(folder)

    def sync(self) -> None:
        """Wait until they are."""
        for folder in self._open.values():
            os.fsync(folder)

    def close(self) -> None:
        """Let go of them."""
        while self._open:
            os.close(self._open.popitem()[1])


def commit_all(
    writers: Sequence[LocalWriter], *, durable: bool = True
) -> Sequence[ObjectInfo | CloudMlError]:
    """Commit uploads of one bucket together: the object of each, or the error that kept it out.

    The disk is asked to write them all before any is waited for, so that they share what makes them
    durable. Without ``durable`` nothing is waited for.

    Raises:
        OutOfSpace: The names cannot be made durable; which of them are, is not known.
    """
    found: list[ObjectInfo | CloudMlError | None] = [None] * len(writers)
    folders = Folders()
    steps: list[Callable[[LocalWriter], ObjectInfo | None]] = [
        lambda writer: writer.prepare(early=durable and len(writers) > 1),
        lambda writer: writer.place(folders, durable=durable),
    ]
    try:
        for step in steps:
            for place, writer in enumerate(writers):
                if found[place] is None:
                    try:
                        found[place] = step(writer)
                    except CloudMlError as error:
                        found[place] = error
                    except OSError as error:
                        if len(writers) == 1:
                            raise
                        found[place] = Unavailable(
                            f"{writer.key} was not stored: {error.strerror}", hint="send it again"
                        )
        if durable:
            with tree.translate_errors("the bucket"):
                folders.sync()
        failpoints.here("objects.place.after")
    finally:
        folders.close()
        for writer in writers:
            writer.abort()
    return [one for one in found if one is not None]


@dataclass(frozen=True, slots=True)
class Content:
    """What is to be an object and was written before: its file, its size in bytes, and the state
    of its SHA-256.
    """

    upload: UploadFile
    size: int
    digest: _Hash


class LocalWriter(ObjectWriter):
    """An upload into a bucket's folder; it begins empty, or with content that was written before.

    The folder stays open until the upload ends. A bucket of the same name that is made meanwhile,
    perhaps by another organisation, is another folder and gets nothing of it.
    """

    def __init__(
        self,
        uploads: Uploads,
        bucket: str,
        key: str,
        only_if_absent: bool,
        *,
        folder: int,
        notes: Notes,
        content: Content | None = None,
    ) -> None:
        self._notes = notes
        self._uploads = uploads
        self._bucket = bucket
        self._key = key
        self._only_if_absent = only_if_absent
        self._digest = content.digest if content else hashlib.sha256()
        self._size = content.size if content else 0
        with tree.translate_errors(bucket, key):
            self._folder = os.dup(folder)
            try:
                self._upload: UploadFile | None = content.upload if content else uploads.begin()
            except BaseException:
                os.close(self._folder)
                raise

    def write(self, chunk: bytes) -> None:
        """Add bytes. Zeros become a hole: copying what a job has made of nothing must not fill
        the disk.
        """
        upload, left = self._running(), memoryview(chunk)
        self._digest.update(chunk)
        self._size += len(chunk)
        try:
            with tree.translate_errors(self._bucket, self._key):
                if len(chunk) >= _HOLE and chunk == bytes(len(chunk)):
                    os.lseek(upload.descriptor, len(chunk), os.SEEK_CUR)
                    return
                while left:
                    left = left[os.write(upload.descriptor, left) :]
        except OutOfSpace:
            self.abort()
            raise

    @property
    def key(self) -> str:
        """The key of the object that it is to be."""
        return self._key

    @property
    def sha256(self) -> str:
        """The digest of what was written so far."""
        return self._digest.hexdigest()

    def commit(self) -> ObjectInfo:
        """Make the object visible, durable and whole."""
        (found,) = commit_all([self])
        if isinstance(found, CloudMlError):
            raise found
        return found

    def prepare(self, *, early: bool) -> None:
        """Make the file what the object is to be; ``early``: begin to write it to the disk, as
        others follow.
        """
        upload = self._running()
        with tree.translate_errors(self._bucket, self._key):
            tree.Owner.of(self._folder).adopt(upload.descriptor)
            # Zeros at the end were skipped and not written, so the size has to be set.
            os.ftruncate(upload.descriptor, self._size)
            if early:
                # Linux begins to write dirty pages of such a file, and does not wait for them.
                os.posix_fadvise(upload.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def place(self, folders: Folders, *, durable: bool = True) -> ObjectInfo:
        """Have the bytes on the disk and give them their name, which is durable once ``folders``
        are.
        """
        upload = self._running()
        with tree.translate_errors(self._bucket, self._key):
            if durable:
                # Sync the bytes before giving the name, so that no name leads to an empty file
                # after a power failure.
                os.fsync(upload.descriptor)
            failpoints.here("objects.place.before")
            self._place(upload, self._folder, tree.Owner.of(self._folder), folders)
            info = object_info(self._bucket, self._key, os.fstat(upload.descriptor))
            return replace(info, sha256=self.sha256)

    def abort(self) -> None:
        """Forget the upload; harmless after ``commit``."""
        upload, self._upload = self._upload, None
        if upload is not None:
            os.close(self._folder)
            self._uploads.discard(upload)

    def _running(self) -> UploadFile:
        if self._upload is None:
            raise ValueError("the upload is over")
        return self._upload

    def _place(self, upload: UploadFile, bucket: int, owner: tree.Owner, changed: Folders) -> None:
        *folders, name = tree.key_parts(self._key)
        # A folder that has just become empty may be removed by a delete between its opening and the
        # rename, which then fails with ENOENT; it is simply made again.
        for _ in range(100):
            try:
                with tree.make_folder(bucket, folders, owner) as folder:
                    self._notes.note_upload(upload.descriptor, self.sha256)
                    self._move(upload.name, folder, name)
                    changed.add(folder)
                    return
            except FileNotFoundError:
                # A link count of 0 means that the bucket's own folder was removed, not only a
                # folder in it.
                if not os.fstat(bucket).st_nlink:
                    raise NotFound(
                        f"there is no bucket {self._bucket}", field="bucket", value=self._bucket
                    ) from None
        raise Unavailable(
            f"the folder of {self._bucket}/{self._key} keeps vanishing", hint="try again"
        )

    def _move(self, source: bytes, folder: int, name: bytes) -> None:
        with tree.opened_path(self._uploads.folder) as uploads:
            try:
                # link(2) fails if the name exists, and rename(2) replaces it. After a crash
                # between the two calls, ``Uploads.sweep`` removes the second name.
                if self._only_if_absent:
                    os.link(
                        source, name, src_dir_fd=uploads, dst_dir_fd=folder, follow_symlinks=False
                    )
                    os.unlink(source, dir_fd=uploads)
                else:
                    os.rename(source, name, src_dir_fd=uploads, dst_dir_fd=folder)
            except (FileExistsError, IsADirectoryError) as error:
                raise self._conflict_error(folder, name) from error

    def _conflict_error(self, folder: int, name: bytes) -> Conflict | AlreadyExists:
        where = f"{self._bucket}/{self._key}"
        if tree.is_folder(folder, name):
            return Conflict(f"{where} is a folder", field="key", value=self._key)
        if tree.file_status(folder, name) is None:
            return Conflict(f"{where} is a link or a pipe of a job's", field="key", value=self._key)
        return AlreadyExists(f"there is an object {where} already", field="key", value=self._key)
