"""Uploads in several requests: a folder for each, with a file for each part, or segments. See
``upload_folders``.

A part's file carries number and digest in its name, so what is kept can be told without reading it;
``segments`` has the other way. The lock of ``about`` orders those who keep a part or a segment,
join or give up; it dies with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cloud_ml import failpoints
from cloud_ml.errors import Conflict, NotFound, Unavailable
from cloud_ml.objects.base import check_object_key
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.objects.local import tree
from cloud_ml.objects.local.counting import count_names
from cloud_ml.objects.local.segments import LocalSegmentWriter, RunningDigests, SegmentFile
from cloud_ml.objects.local.transfer import Content, LocalWriter
from cloud_ml.objects.local.upload_folders import ABOUT, UploadFolders, about
from cloud_ml.objects.local.uploads import UploadFile, Uploads
from cloud_ml.objects.multipart import (
    Declared,
    Multipart,
    MultipartUploads,
    Part,
    PartWriter,
    Received,
    SegmentWriter,
    check_chosen,
    check_digest,
    check_part_number,
    check_size,
    check_upload_id,
    mixed_upload,
    no_upload,
)

_PART = re.compile(r"(\d{5})\.([0-9a-f]{64})")
_BLOCK = 1 << 20
_TRIES = 100

WriterOf = Callable[[str, str, bool, Content | None], LocalWriter]


class LocalMultipartUploads(MultipartUploads):
    """Below ``folder``, which no job sees.

    Args:
        folder: Where they are kept, on the buckets' file system.
        drafts: Where parts grow until they are whole.
        writer: Begins an upload of an object: bucket, key, only if absent, and its content where
            that is there already.
    """

    def __init__(self, folder: Path, drafts: Uploads, writer: WriterOf) -> None:
        self._folders = UploadFolders(folder)
        self._drafts = drafts
        self._writer = writer
        self._digests = RunningDigests()

    def begin(self, upload: str, bucket: str, key: str, declared: Declared) -> Multipart:
        """Begin an upload, or find it under way."""
        check_upload_id(upload)
        check_object_key(key)
        self._writer(bucket, key, False, None).abort()  # may the object be placed at all?
        with tree.translate_errors(bucket, key):
            draft = self._drafts.begin()
            try:
                os.write(draft.descriptor, about(bucket, key, declared))
                os.fsync(draft.descriptor)
                self._link_about(self._drafts.path(draft.name), self._place(bucket, upload))
            finally:
                self._drafts.discard(draft)
        found = self._folders.read(bucket, upload)
        if found is None or (found.key, found.declared) != (key, declared):
            raise Conflict(
                f"the upload {upload} is one of another object", field="upload", value=upload
            )
        return found

    def _link_about(self, draft: Path, place: Path) -> None:
        for _ in range(_TRIES):
            if not place.parent.exists():
                place.parent.mkdir(mode=0o700, exist_ok=True)
                tree.sync(place.parent.parent)
            # The bucket, or an upload of this id, was removed at this moment: try again.
            with contextlib.suppress(FileNotFoundError):
                place.mkdir(mode=0o700, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    # If two callers begin the same upload at once, both continue with the first
                    # one.
                    os.link(draft, place / ABOUT)
                tree.sync(place)
                tree.sync(place.parent)
                return
        raise Unavailable("uploads of this object end all the time", hint="try again")

    def get(self, bucket: str, upload: str) -> Multipart:
        """An upload."""
        found = self._folders.read(bucket, check_upload_id(upload))
        if found is None:
            raise no_upload(upload)
        return found

    def all(self, bucket: str | None = None) -> Sequence[Multipart]:
        """The uploads under way. Those of one bucket cost nothing for those of others."""
        buckets = self._folders.buckets() if bucket is None else [bucket]
        found = (
            self._folders.read(name, upload)
            for name in buckets
            for upload in self._folders.ids(name)
        )
        return sorted(
            (one for one in found if one is not None), key=lambda one: (one.bucket, one.key, one.id)
        )

    def count(self, bucket: str) -> int:
        """How many there are, by their names alone."""
        return sum(1 for _ in self._folders.ids(bucket))

    def names(self, bucket: str, stop: Callable[[], bool]) -> int:
        """Files and folders of the uploads to a bucket."""
        try:
            with tree.opened_path(self._folders.place(bucket, "")) as folder:
                return count_names(folder, stop)
        except FileNotFoundError:
            return 0

    def parts(self, bucket: str, upload: str) -> Sequence[Part]:
        """The parts that are kept."""
        self.get(bucket, upload)
        return sorted(self._list_parts(bucket, upload), key=lambda part: part.number)

    def writer(self, bucket: str, upload: str, number: int) -> PartWriter:
        """Take in a part."""
        check_part_number(number)
        self.get(bucket, upload)
        if self._segments(bucket, upload).received().size:
            raise mixed_upload(upload)
        return _LocalPartWriter(self, bucket, upload, number, self._drafts)

    def received(self, bucket: str, upload: str) -> Received:
        """What has been appended."""
        self.get(bucket, upload)
        return self._segments(bucket, upload).received()

    def append(self, bucket: str, upload: str, offset: int) -> SegmentWriter:
        """Take in a segment."""
        self.get(bucket, upload)
        if next(self._list_parts(bucket, upload), None) is not None:
            raise mixed_upload(upload)
        try:
            return LocalSegmentWriter(
                offset, self._segments(bucket, upload), self._digests, self._keep_segment
            )
        except NotFound:
            with self.locked(bucket, upload):
                self._remove_if_placed(bucket, upload)
            raise

    def join(
        self,
        bucket: str,
        upload: str,
        parts: Sequence[Part] | None = None,
        *,
        only_if_absent: bool = False,
    ) -> ObjectInfo:
        """Copy the parts together, or move what was appended to its place."""
        about = self.get(bucket, upload)
        with self.locked(bucket, upload):
            whole = self._whole(about, parts, only_if_absent)
            with whole:
                check_digest(whole.sha256, about.declared)
                failpoints.here("objects.join.before")
                info = whole.commit()
            failpoints.here("objects.join.after")
            # Remove the parts last: after a crash before this line, a retry joins the same parts
            # again.
            self._remove(bucket, upload)
        return info

    def _whole(
        self, about: Multipart, parts: Sequence[Part] | None, only_if_absent: bool
    ) -> LocalWriter:
        """An upload of an object that has all its content."""
        received = self._segments(about.bucket, about.id).received()
        if received.size:
            return self._append_parts(about, parts, received, only_if_absent)
        chosen = check_chosen(self.parts(about.bucket, about.id), parts, about.declared)
        whole = self._writer(about.bucket, about.key, only_if_absent, None)
        try:
            for part in chosen:
                for block in _blocks(self._place(about.bucket, about.id) / _name(part)):
                    whole.write(block)
        except BaseException:
            whole.abort()
            raise
        return whole

    def _append_parts(
        self,
        about: Multipart,
        parts: Sequence[Part] | None,
        received: Received,
        only_if_absent: bool,
    ) -> LocalWriter:
        if parts is not None:
            raise mixed_upload(about.id)
        check_size(received.size, about.declared)
        file = self._segments(about.bucket, about.id)
        with tree.translate_errors(about.bucket, about.key):
            try:
                descriptor = file.open_locked()
            except NotFound:
                self._remove_if_placed(about.bucket, about.id)
                raise
            try:
                state = file.verified(descriptor, received)
                os.ftruncate(descriptor, received.size)
                # A second name: should the object not be placed, the upload goes on with the first.
                draft = self._drafts.adopt(descriptor, file.path, about.bucket, about.id)
            except BaseException:
                os.close(descriptor)
                raise
        return self._writer(
            about.bucket, about.key, only_if_absent, Content(draft, received.size, state)
        )

    def drop(self, bucket: str, upload: str) -> None:
        """Forget an upload and its parts."""
        self.get(bucket, upload)
        with tree.translate_errors(bucket), self.locked(bucket, upload):
            self._remove(bucket, upload)

    def drop_bucket(self, bucket: str) -> None:
        """Forget all uploads to a bucket, which is removed."""
        for upload in self._folders.ids(bucket):
            with contextlib.suppress(NotFound):  # it ends at this moment
                self.drop(bucket, upload)
        self._folders.remove_bucket(bucket)

    def keep(self, bucket: str, upload: str, draft: Path, part: Part) -> None:
        """Put a part that is whole among the others; for its writer.

        Raises:
            NotFound: The upload is over.
        """
        with self.locked(bucket, upload):
            place = self._place(bucket, upload)
            failpoints.here("objects.part.before")
            draft.replace(place / _name(part))
            for older in place.glob(f"{part.number:05d}.*"):
                if older.name != _name(part):
                    older.unlink(missing_ok=True)
            tree.sync(place)
            failpoints.here("objects.part.after")

    def _remove_if_placed(self, bucket: str, upload: str) -> None:
        """Remove what a crash has left of an upload whose file is an object already. Only with
        the upload's lock.
        """
        if self._segments(bucket, upload).is_placed():
            self._remove(bucket, upload)

    def _keep_segment(self, file: SegmentFile, received: Received, descriptor: int) -> None:
        """Note that a segment is complete, which lies in the open file.

        Raises:
            NotFound: The upload is over. Another one of its id may have begun.
        """
        with self.locked(file.bucket, file.upload):
            if not file.holds(descriptor):
                raise no_upload(file.upload)
            file.mark(received)

    def _segments(self, bucket: str, upload: str) -> SegmentFile:
        return SegmentFile(self._place(bucket, upload), bucket, upload, self._digests, self._drafts)

    def sweep(self) -> None:
        """Remove what a crash has left of uploads that were over, and move those of earlier
        versions.
        """
        self._folders.move_earlier()
        self._folders.sweep()

    @contextlib.contextmanager
    def locked(self, bucket: str, upload: str) -> Iterator[None]:
        """Nobody else changes the upload meanwhile."""
        try:
            descriptor = os.open(self._place(bucket, upload) / ABOUT, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise no_upload(upload) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The upload may have ended while this waited for the lock.
            if not os.fstat(descriptor).st_nlink:
                raise no_upload(upload)
            yield
        finally:
            os.close(descriptor)

    def _remove(self, bucket: str, upload: str) -> None:
        self._folders.remove(bucket, upload)
        self._drafts.discard_adopted(bucket, upload)
        self._digests.forget(bucket, upload)

    def _place(self, bucket: str, upload: str) -> Path:
        return self._folders.place(bucket, upload)

    def _list_parts(self, bucket: str, upload: str) -> Iterator[Part]:
        for path in self._place(bucket, upload).iterdir():
            if match := _PART.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):  # replaced in this moment
                    yield Part(int(match[1]), path.stat().st_size, match[2])


class _LocalPartWriter(PartWriter):
    def __init__(
        self, uploads: LocalMultipartUploads, bucket: str, upload: str, number: int, drafts: Uploads
    ) -> None:
        self._uploads = uploads
        self._bucket = bucket
        self._id = upload
        self._number = number
        self._drafts = drafts
        self._digest = hashlib.sha256()
        with tree.translate_errors(bucket):
            self._draft: UploadFile | None = drafts.begin()

    def write(self, chunk: bytes) -> None:
        draft, left = self._running(), memoryview(chunk)
        self._digest.update(chunk)
        try:
            with tree.translate_errors(self._bucket):
                while left:
                    left = left[os.write(draft.descriptor, left) :]
        except BaseException:
            self.abort()
            raise

    def commit(self) -> Part:
        draft = self._running()
        try:
            with tree.translate_errors(self._bucket):
                os.fsync(draft.descriptor)
                part = Part(
                    self._number, os.fstat(draft.descriptor).st_size, self._digest.hexdigest()
                )
                self._uploads.keep(self._bucket, self._id, self._drafts.path(draft.name), part)
            return part
        finally:
            self.abort()

    def abort(self) -> None:
        draft, self._draft = self._draft, None
        if draft is not None:
            self._drafts.discard(draft)

    def _running(self) -> UploadFile:
        if self._draft is None:
            raise ValueError("the part is over")
        return self._draft


def _name(part: Part) -> str:
    return f"{part.number:05d}.{part.sha256}"


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block
