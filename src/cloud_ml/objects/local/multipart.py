"""Uploads in several requests as folders beside the buckets: ``<id>/about`` and a file for each part, or segments.

A part's file carries number and digest in its name, so what is kept can be told without reading it; ``segments`` has
the other way. The lock of ``about`` orders those who keep a part or a segment, join or give up; it dies with
its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from cloud_ml import failpoints
from cloud_ml.errors import Conflict, NotFound, Unavailable
from cloud_ml.objects.base import ObjectInfo, check_object_key
from cloud_ml.objects.local import tree
from cloud_ml.objects.local.segments import LocalSegmentWriter, RunningDigests, SegmentFile, open_locked
from cloud_ml.objects.local.transfer import Content, LocalWriter
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
    mixed,
    no_upload,
)

_PART = re.compile(r"(\d{5})\.([0-9a-f]{64})")
_ABOUT = "about"
_BLOCK = 1 << 20
_BEGINNING_S = 3600.0
_TRIES = 100

WriterOf = Callable[[str, str, bool, Content | None], LocalWriter]


class LocalMultipartUploads(MultipartUploads):
    """Below ``folder``, which no job sees.

    Args:
        folder: Where they are kept, on the buckets' file system.
        drafts: Where parts grow until they are whole.
        writer: Begins an upload of an object: bucket, key, only if absent, and its content where that is there already.
    """

    def __init__(self, folder: Path, drafts: Uploads, writer: WriterOf) -> None:
        self.folder = folder
        self._drafts = drafts
        self._writer = writer
        self._digests = RunningDigests()

    def begin(self, upload: str, bucket: str, key: str, declared: Declared) -> Multipart:
        """Begin an upload, or find it under way."""
        check_upload_id(upload)
        check_object_key(key)
        self._writer(bucket, key, False, None).abort()  # may the object be placed at all?
        about = json.dumps({"bucket": bucket, "key": key, **asdict(declared)})
        place = self.folder / upload
        with tree.translated(bucket, key):
            draft = self._drafts.begin()
            try:
                os.write(draft.descriptor, about.encode())
                os.fsync(draft.descriptor)
                self._link_about(self._drafts.path(draft.name), place)
            finally:
                self._drafts.discard(draft)
        found = self._read(upload)
        if found is None or (found.bucket, found.key, found.declared) != (bucket, key, declared):
            raise Conflict(f"the upload {upload} is one of another object", field="upload", value=upload)
        return found

    def _link_about(self, draft: Path, place: Path) -> None:
        for _ in range(_TRIES):
            place.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # an upload of this id ended at this moment
                with contextlib.suppress(FileExistsError):
                    os.link(draft, place / _ABOUT)
                _sync(place)
                _sync(self.folder)
                return
        raise Unavailable("uploads of this object end all the time", hint="try again")

    def get(self, bucket: str, upload: str) -> Multipart:
        """An upload."""
        found = self._read(check_upload_id(upload))
        if found is None or found.bucket != bucket:
            raise no_upload(upload)
        return found

    def all(self, bucket: str | None = None) -> Sequence[Multipart]:
        """The uploads under way."""
        found = (self._read(path.name) for path in self.folder.iterdir())
        mine = (one for one in found if one is not None and bucket in (None, one.bucket))
        return sorted(mine, key=lambda one: (one.bucket, one.key, one.id))

    def parts(self, bucket: str, upload: str) -> Sequence[Part]:
        """The parts that are kept."""
        self.get(bucket, upload)
        return sorted(self._kept(upload), key=lambda part: part.number)

    def writer(self, bucket: str, upload: str, number: int) -> PartWriter:
        """Take in a part."""
        check_part_number(number)
        self.get(bucket, upload)
        if self._segments(upload).received().size:
            raise mixed(upload)
        return _LocalPartWriter(self, bucket, upload, number, self._drafts)

    def received(self, bucket: str, upload: str) -> Received:
        """What has been appended."""
        self.get(bucket, upload)
        return self._segments(upload).received()

    def append(self, bucket: str, upload: str, offset: int) -> SegmentWriter:
        """Take in a segment."""
        self.get(bucket, upload)
        if next(self._kept(upload), None) is not None:
            raise mixed(upload)
        with self._over_if_placed(upload):
            return LocalSegmentWriter(upload, offset, self._segments(upload), self._digests, self._keep_segment)

    def join(
        self, bucket: str, upload: str, parts: Sequence[Part] | None = None, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Copy the parts together, or move what was appended to its place."""
        about = self.get(bucket, upload)
        with self.locked(upload):
            whole = self._whole(about, parts, only_if_absent)
            with whole:
                check_digest(whole.sha256, about.declared)
                failpoints.here("objects.join.before")
                info = whole.commit()
            failpoints.here("objects.join.after")
            self._remove(upload)
        return info

    def _whole(self, about: Multipart, parts: Sequence[Part] | None, only_if_absent: bool) -> LocalWriter:
        """An upload of an object that has all its content."""
        received = self._segments(about.id).received()
        if received.size:
            return self._appended(about, parts, received, only_if_absent)
        chosen = check_chosen(self.parts(about.bucket, about.id), parts, about.declared)
        whole = self._writer(about.bucket, about.key, only_if_absent, None)
        try:
            for part in chosen:
                for block in _blocks(self.folder / about.id / _name(part)):
                    whole.write(block)
        except BaseException:
            whole.abort()
            raise
        return whole

    def _appended(
        self, about: Multipart, parts: Sequence[Part] | None, received: Received, only_if_absent: bool
    ) -> LocalWriter:
        if parts is not None:
            raise mixed(about.id)
        check_size(received.size, about.declared)
        file = self._segments(about.id)
        with tree.translated(about.bucket, about.key):
            with self._over_if_placed(about.id):
                descriptor = open_locked(file.path, about.id)
            try:
                state = file.verified(descriptor, received)
                os.ftruncate(descriptor, received.size)
                # A second name: should the object not be placed, the upload goes on with the first.
                draft = self._drafts.adopt(descriptor, file.path)
            except BaseException:
                os.close(descriptor)
                raise
        return self._writer(about.bucket, about.key, only_if_absent, Content(draft, received.size, state))

    def drop(self, bucket: str, upload: str) -> None:
        """Forget an upload and its parts."""
        self.get(bucket, upload)
        with tree.translated(bucket), self.locked(upload):
            self._remove(upload)

    def keep(self, upload: str, draft: Path, part: Part) -> None:
        """Put a part that is whole among the others; for its writer.

        Raises:
            NotFound: The upload is over.
        """
        with self.locked(upload):
            place = self.folder / upload
            failpoints.here("objects.part.before")
            draft.replace(place / _name(part))
            for older in place.glob(f"{part.number:05d}.*"):
                if older.name != _name(part):
                    older.unlink(missing_ok=True)
            _sync(place)
            failpoints.here("objects.part.after")

    @contextlib.contextmanager
    def _over_if_placed(self, upload: str) -> Iterator[None]:
        """Remove what a crash has left of an upload whose file is an object already."""
        try:
            yield
        except NotFound:
            self._remove(upload)
            raise

    def _keep_segment(self, upload: str, received: Received, descriptor: int) -> None:
        """Note that a segment is complete, which lies in the open file.

        Raises:
            NotFound: The upload is over. Another one of its id may have begun.
        """
        with self.locked(upload):
            file = self._segments(upload)
            if not file.holds(descriptor):
                raise no_upload(upload)
            file.mark(received)

    def _segments(self, upload: str) -> SegmentFile:
        return SegmentFile(self.folder / upload, upload, self._digests)

    def sweep(self) -> None:
        """Remove what a crash has left of uploads that were over. One that begins at this moment is left alone."""
        old = time.time() - _BEGINNING_S
        for place in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if not (place / _ABOUT).exists() and place.stat().st_mtime < old:
                    shutil.rmtree(place, ignore_errors=True)

    @contextlib.contextmanager
    def locked(self, upload: str) -> Iterator[None]:
        """Nobody else changes the upload meanwhile."""
        try:
            descriptor = os.open(self.folder / upload / _ABOUT, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise no_upload(upload) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not os.fstat(descriptor).st_nlink:
                raise no_upload(upload)
            yield
        finally:
            os.close(descriptor)

    def _remove(self, upload: str) -> None:
        place = self.folder / upload
        (place / _ABOUT).unlink(missing_ok=True)  # first: without it there is no upload any more
        aside = self.folder / f"{upload}.{secrets.token_hex(8)}"  # one that begins under this id has its own folder
        with contextlib.suppress(OSError):
            place.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
        self._digests.forget(upload)

    def _read(self, upload: str) -> Multipart | None:
        place = self.folder / upload
        try:
            about = json.loads((place / _ABOUT).read_bytes())
            touched = datetime.fromtimestamp(place.stat().st_mtime, UTC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        bucket, key = about.pop("bucket"), about.pop("key")
        return Multipart(upload, bucket, key, Declared(**about), touched)

    def _kept(self, upload: str) -> Iterator[Part]:
        for path in (self.folder / upload).iterdir():
            if match := _PART.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):  # replaced in this moment
                    yield Part(int(match[1]), path.stat().st_size, match[2])


class _LocalPartWriter(PartWriter):
    def __init__(self, uploads: LocalMultipartUploads, bucket: str, upload: str, number: int, drafts: Uploads) -> None:
        self._uploads = uploads
        self._bucket = bucket
        self._id = upload
        self._number = number
        self._drafts = drafts
        self._digest = hashlib.sha256()
        with tree.translated(bucket):
            self._draft: UploadFile | None = drafts.begin()

    def write(self, chunk: bytes) -> None:
        draft, left = self._running(), memoryview(chunk)
        self._digest.update(chunk)
        try:
            with tree.translated(self._bucket):
                while left:
                    left = left[os.write(draft.descriptor, left) :]
        except BaseException:
            self.abort()
            raise

    def commit(self) -> Part:
        draft = self._running()
        try:
            with tree.translated(self._bucket):
                os.fsync(draft.descriptor)
                part = Part(self._number, os.fstat(draft.descriptor).st_size, self._digest.hexdigest())
                self._uploads.keep(self._id, self._drafts.path(draft.name), part)
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


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
