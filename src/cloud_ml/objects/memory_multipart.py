"""Uploads in several requests, in memory."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from cloud_ml.errors import Conflict, Unavailable
from cloud_ml.objects.base import ObjectStore, check_object_key
from cloud_ml.objects.info import ObjectInfo
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
    check_offset,
    check_part_number,
    check_size,
    check_upload_id,
    mixed_upload,
    no_upload,
)


@dataclass
class _Upload:
    about: Multipart
    parts: dict[int, bytes] = field(default_factory=dict)
    appended: bytes = b""
    appending: threading.Lock = field(default_factory=threading.Lock)
    joining: threading.Lock = field(default_factory=threading.Lock)


class MemoryMultipartUploads(MultipartUploads):
    """Dictionaries of bytes."""

    def __init__(self, store: ObjectStore, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._uploads: dict[str, _Upload] = {}
        self._lock = threading.Lock()

    def begin(self, upload: str, bucket: str, key: str, declared: Declared) -> Multipart:
        """Begin an upload, or find it under way."""
        check_upload_id(upload)
        check_object_key(key)
        # Open a writer only for its checks, so that an invalid bucket or key is refused now and
        # not at the end of the upload.
        self._store.writer(bucket, key).abort()
        fresh = _Upload(Multipart(upload, bucket, key, declared, self._clock()))
        with self._lock:
            about = self._uploads.setdefault(upload, fresh).about
        if (about.bucket, about.key, about.declared) != (bucket, key, declared):
            raise Conflict(
                f"the upload {upload} is one of another object", field="upload", value=upload
            )
        return about

    def get(self, bucket: str, upload: str) -> Multipart:
        """An upload."""
        return self._find(bucket, upload).about

    def all(self, bucket: str | None = None) -> Sequence[Multipart]:
        """The uploads under way."""
        with self._lock:
            found = [
                one.about for one in self._uploads.values() if bucket in (None, one.about.bucket)
            ]
        return sorted(found, key=lambda one: (one.bucket, one.key, one.id))

    def parts(self, bucket: str, upload: str) -> Sequence[Part]:
        """The parts that are kept."""
        found = self._find(bucket, upload)
        with self._lock:
            kept = sorted(found.parts.items())
        return [
            Part(number, len(content), hashlib.sha256(content).hexdigest())
            for number, content in kept
        ]

    def writer(self, bucket: str, upload: str, number: int) -> PartWriter:
        """Take in a part."""
        check_part_number(number)
        if self._find(bucket, upload).appended:
            raise mixed_upload(upload)
        return _MemoryPartWriter(self, bucket, upload, number)

    def received(self, bucket: str, upload: str) -> Received:
        """What has been appended."""
        return _measure_content(self._find(bucket, upload).appended)

    def append(self, bucket: str, upload: str, offset: int) -> SegmentWriter:
        """Take in a segment."""
        found = self._find(bucket, upload)
        if found.parts:
            raise mixed_upload(upload)
        check_offset(offset, _measure_content(found.appended))
        if not found.appending.acquire(blocking=False):
            raise Unavailable(
                "another segment of this upload is on its way", field="upload", value=upload
            )
        return _MemorySegmentWriter(self, found)

    def join(
        self,
        bucket: str,
        upload: str,
        parts: Sequence[Part] | None = None,
        *,
        only_if_absent: bool = False,
    ) -> ObjectInfo:
        """Put the parts together."""
        found = self._find(bucket, upload)
        with found.joining:
            self._find(bucket, upload)
            if found.appending.locked():
                raise Unavailable(
                    "a segment of this upload is on its way", field="upload", value=upload
                )
            if found.appended:
                if parts is not None:
                    raise mixed_upload(upload)
                check_size(len(found.appended), found.about.declared)
                whole = found.appended
            else:
                chosen = check_chosen(self.parts(bucket, upload), parts, found.about.declared)
                whole = b"".join(found.parts[part.number] for part in chosen)
            check_digest(hashlib.sha256(whole).hexdigest(), found.about.declared)
            info = self._store.put(bucket, found.about.key, whole, only_if_absent=only_if_absent)
            self.drop(bucket, upload)
            return info

    def drop(self, bucket: str, upload: str) -> None:
        """Forget an upload and its parts."""
        self._find(bucket, upload)
        with self._lock:
            self._uploads.pop(upload, None)

    def keep(self, bucket: str, upload: str, number: int, content: bytes) -> None:
        """Keep a part that is whole; for its writer."""
        found = self._find(bucket, upload)
        with self._lock:
            found.parts[number] = content
            found.about = replace(found.about, touched=self._clock())

    def keep_segment(self, upload: _Upload, content: bytes) -> Received:
        """Keep what was appended; for the writer of a segment."""
        found = self._find(upload.about.bucket, upload.about.id)
        if found is not upload:  # another one began under its id
            raise no_upload(upload.about.id)
        with self._lock:
            found.appended += content
            found.about = replace(found.about, touched=self._clock())
        return _measure_content(found.appended)

    def _find(self, bucket: str, upload: str) -> _Upload:
        check_upload_id(upload)
        with self._lock:
            found = self._uploads.get(upload)
        if found is None or found.about.bucket != bucket:
            raise no_upload(upload)
        return found


class _MemoryPartWriter(PartWriter):
    def __init__(
        self, uploads: MemoryMultipartUploads, bucket: str, upload: str, number: int
    ) -> None:
        self._uploads = uploads
        self._where = (bucket, upload, number)
        self._chunks: list[bytes] | None = []

    def write(self, chunk: bytes) -> None:
        if self._chunks is None:
            raise ValueError("the part is over")
        self._chunks.append(bytes(chunk))

    def commit(self) -> Part:
        if self._chunks is None:
            raise ValueError("the part is over")
        content, self._chunks = b"".join(self._chunks), None
        self._uploads.keep(*self._where, content)
        return Part(self._where[2], len(content), hashlib.sha256(content).hexdigest())

    def abort(self) -> None:
        self._chunks = None


class _MemorySegmentWriter(SegmentWriter):
    def __init__(self, uploads: MemoryMultipartUploads, upload: _Upload) -> None:
        self._uploads = uploads
        self._upload = upload
        self._chunks: list[bytes] | None = []

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self._upload.appended + b"".join(self._chunks or ())).hexdigest()

    def write(self, chunk: bytes) -> None:
        if self._chunks is None:
            raise ValueError("the segment is over")
        self._chunks.append(bytes(chunk))

    def commit(self) -> Received:
        if self._chunks is None:
            raise ValueError("the segment is over")
        try:
            return self._uploads.keep_segment(self._upload, b"".join(self._chunks))
        finally:
            self.abort()

    def abort(self) -> None:
        if self._chunks is not None:
            self._chunks = None
            self._upload.appending.release()


def _measure_content(content: bytes) -> Received:
    return Received(len(content), hashlib.sha256(content).hexdigest())
