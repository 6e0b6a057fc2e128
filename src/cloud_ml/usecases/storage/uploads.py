"""Uploads in several requests: begun, gone on with after any interruption, completed or given
up.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import re
import secrets
from datetime import timedelta
from types import TracebackType
from typing import Self

from cloud_ml.errors import Conflict, NotFound, Unauthenticated
from cloud_ml.models import common
from cloud_ml.models.storage.objects import (
    BeginUpload,
    CompleteUpload,
    ReceivedBytes,
    StoredObject,
    UploadInParts,
    UploadPage,
    UploadPart,
)
from cloud_ml.objects.base import ObjectStore
from cloud_ml.objects.multipart import (
    PARTS,
    Declared,
    Multipart,
    Part,
    PartWriter,
    SegmentWriter,
    UploadWriter,
)
from cloud_ml.settings import StorageSettings
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.storage.objects import Storage, stored_object
from cloud_ml.usecases.storage.pending_uploads import Share

logger = logging.getLogger(__name__)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RESUME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Incoming:
    """Bytes on their way into an upload; leaving the ``with`` block without ``finish`` leaves no
    trace. Blocking.
    """

    def __init__(self, writer: UploadWriter, store: StateStore, limit: int, share: Share) -> None:
        self._share = share
        self._writes = writer
        self._store = store
        self._limit = limit
        self._size = 0

    def write(self, chunk: bytes) -> None:
        """Add bytes.

        Raises:
            InvalidRequest: They are more than one request may bring.
            QuotaExceeded: The quota of storage has no room for them.
        """
        self._size += len(chunk)
        if self._size > self._limit:
            raise common.refuse(
                "part", f"more than {self._limit} bytes", f"at most {self._limit} bytes"
            )
        self._share.take(len(chunk))
        self._writes.write(chunk)

    def abort(self) -> None:
        """Forget what came; harmless after ``finish``."""
        self._share.drop()
        self._writes.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()


class PartUpload(_Incoming):
    """A part on its way in."""

    def __init__(self, writer: PartWriter, store: StateStore, limit: int, share: Share) -> None:
        super().__init__(writer, store, limit, share)
        self._writer = writer

    def finish(self, once: Once | None) -> UploadPart:
        """Keep the part. A replayed request is found out before that and changes nothing.

        Raises:
            Unauthenticated: ``once`` was seen before.
            NotFound: The upload is over.
        """
        if once is not None:
            self._store.remember(once)
        part = self._writer.commit()
        self._share.keep()
        return _part(part)


class SegmentUpload(_Incoming):
    """A segment on its way in.

    Args:
        sha256: What the digest of the whole upload has to be, from its first byte to the last of
            this segment.
    """

    def __init__(
        self, writer: SegmentWriter, store: StateStore, limit: int, share: Share, sha256: str
    ) -> None:
        super().__init__(writer, store, limit, share)
        self._writer = writer
        self._sha256 = sha256

    def finish(self, once: Once | None) -> ReceivedBytes:
        """Keep the segment. A replayed request is found out before that and changes nothing.

        Raises:
            Unauthenticated: ``once`` was seen before, or the bytes are not those whose digest was
                signed.
            NotFound: The upload is over.
        """
        if not hmac.compare_digest(self._writer.sha256, self._sha256):
            raise Unauthenticated(
                "the bytes up to here do not have the digest that was signed",
                field="sha256",
                value=self._sha256,
            )
        if once is not None:
            self._store.remember(once)
        received = self._writer.commit()
        self._share.keep()
        return ReceivedBytes(size=received.size, sha256=received.sha256)


class Uploads:
    """What an organisation may do with uploads in several requests. Blocking; callers in an event
    loop use a thread.

    An upload that is not there and one in somebody else's bucket get the same ``NotFound``.
    """

    def __init__(
        self,
        storage: Storage,
        store: StateStore,
        objects: ObjectStore,
        clock: Clock,
        settings: StorageSettings,
    ) -> None:
        self._storage = storage
        self._store = store
        self._objects = objects
        self._multipart = objects.multipart
        self._clock = clock
        self._settings = settings

    def begin(
        self,
        org: str,
        bucket: str,
        request: BeginUpload,
        *,
        client: str = "",
        once: Once | None = None,
    ) -> UploadInParts:
        """Begin an upload, or find the one of this ``client`` under way for the same content and
        key.

        So a client that was killed goes on by asking for the same again, and no other client
        completes its upload or gives it up. Without a declared digest or a ``resume`` token every
        call begins another one.

        Raises:
            NotFound: No such bucket for this organisation.
            InvalidRequest: A field is out of range.
            Conflict: The key cannot be placed, or too many uploads are under way.
            QuotaExceeded: The organisation's quota of storage has no room for it.
        """
        self._storage.check_own(org, bucket)
        declared = _check_declared(request, self._settings.upload_part_limit_bytes)
        self._storage.check_room(org, declared.size or 0)
        upload = _id_for((org, bucket, request.key, client), request, declared)
        self._check_few(bucket, upload)
        if once is not None:
            self._store.remember(once)
        with self._objects.bucket_lock(bucket, shared=True):
            # Checked again under the lock: the bucket may have been removed.
            self._storage.check_own(org, bucket)
            begun = self._multipart.begin(upload, bucket, request.key, declared)
        return self._document(begun)

    def get(self, org: str, bucket: str, upload: str) -> UploadInParts:
        """An upload and its parts."""
        self._storage.check_own(org, bucket)
        return self._document(self._multipart.get(bucket, upload))

    def all(self, org: str, bucket: str) -> UploadPage:
        """The uploads to a bucket that are under way, without their parts."""
        self._storage.check_own(org, bucket)
        found: list[UploadInParts] = []
        for one in self._multipart.all(bucket):
            with contextlib.suppress(NotFound):  # it ended at this moment
                found.append(self._document(one, with_parts=False))
        return UploadPage(items=found)

    def part(
        self, org: str, bucket: str, upload: str, number: int, *, key: str | None = None
    ) -> PartUpload:
        """Begin to take in a part.

        Raises:
            NotFound: No such upload (or it is for another ``key``).
            InvalidRequest: There is no part of that number.
        """
        self._find(org, bucket, upload, key)
        self._storage.check_room(org, 0)
        writer = self._multipart.writer(bucket, upload, number)
        return PartUpload(
            writer, self._store, self._settings.upload_part_limit_bytes, self._storage.share(org)
        )

    def append(self, org: str, bucket: str, upload: str, offset: int, sha256: str) -> SegmentUpload:
        """Begin to take in a segment that starts at byte ``offset``.

        ``sha256`` is the digest of all bytes of the upload up to the end of the segment.

        Raises:
            NotFound: No such upload.
            InvalidRequest: ``sha256`` is no digest.
            Conflict: What was received ends elsewhere, or the upload has parts.
            Unavailable: Another segment is on its way.
        """
        if not _SHA256.fullmatch(sha256):
            raise common.refuse("sha256", sha256, "64 lower-case hex digits")
        self._storage.check_own(org, bucket)
        self._storage.check_room(org, 0)
        share = self._storage.share(org)
        writer = self._multipart.append(bucket, upload, offset)
        return SegmentUpload(
            writer, self._store, self._settings.upload_part_limit_bytes, share, sha256
        )

    def complete(
        self,
        org: str,
        bucket: str,
        upload: str,
        completion: CompleteUpload,
        *,
        key: str | None = None,
        once: Once | None,
    ) -> StoredObject:
        """Make the object appear, as a whole.

        Raises:
            NotFound: No such upload: also where another call has just completed it.
            Conflict: A part is missing, or the whole is not what was declared.
            AlreadyExists: The object was to be new and is not.
        """
        about = self._find(org, bucket, upload, key)
        if completion.sha256 is not None and about.declared.sha256 not in (None, completion.sha256):
            raise Conflict(
                "the digest is another one than was declared",
                field="sha256",
                value=completion.sha256,
            )
        if completion.sha256 is not None:
            self._check_received(bucket, upload, completion.sha256)
        size = self._multipart.size(bucket, upload)
        self._storage.check_room(org, size, freed=size)
        parts = (
            None
            if completion.parts is None
            else [Part(one.number, one.size, one.sha256) for one in completion.parts]
        )
        if once is not None:
            self._store.remember(once)
        info = self._multipart.join(bucket, upload, parts, only_if_absent=completion.only_if_absent)
        self._storage.note_added(info)
        return stored_object(info)

    def drop(
        self,
        org: str,
        bucket: str,
        upload: str,
        *,
        key: str | None = None,
        once: Once | None = None,
    ) -> None:
        """Give an upload up."""
        self._find(org, bucket, upload, key)
        if once is not None:
            self._store.remember(once)
        self._multipart.drop(bucket, upload)

    def sweep(self) -> int:
        """Drop uploads that nobody went on with for so long that they have expired; returns how
        many.
        """
        count = self._multipart.drop_older(self._clock() - self._expiry)
        if count:
            logger.info("%d uploads have expired", count)
        return count

    @property
    def _expiry(self) -> timedelta:
        return timedelta(seconds=self._settings.upload_expiry_s)

    def _check_few(self, bucket: str, upload: str) -> None:
        """Refuse one more upload where there are as many as there may be; one of them may go on."""
        under_way = self._multipart.count(bucket)
        if under_way < self._settings.uploads_per_bucket:
            return
        try:
            self._multipart.get(bucket, upload)
        except NotFound:
            raise Conflict(
                f"{under_way} uploads to {bucket} are under way, no more may be",
                field="bucket",
                value=bucket,
                hint="complete or give up others; unfinished ones expire",
            ) from None

    def _find(self, org: str, bucket: str, upload: str, key: str | None) -> Multipart:
        self._storage.check_own(org, bucket)
        about = self._multipart.get(bucket, upload)
        # No upload has an empty id, so an upload of another key gets the same error as a missing
        # one.
        return about if key in (None, about.key) else self._multipart.get(bucket, "")

    def _check_received(self, bucket: str, upload: str, sha256: str) -> None:
        received = self._multipart.received(bucket, upload)
        if received.size and received.sha256 != sha256:
            raise Conflict(
                f"what was received has the SHA-256 {received.sha256}, not the one that is to "
                "be completed",
                field="sha256",
                value=sha256,
            )

    def _document(self, about: Multipart, *, with_parts: bool = True) -> UploadInParts:
        parts = self._multipart.parts(about.bucket, about.id) if with_parts else ()
        received = self._multipart.received(about.bucket, about.id)
        return UploadInParts(
            id=about.id,
            bucket=about.bucket,
            key=about.key,
            size=about.declared.size,
            sha256=about.declared.sha256,
            part_size=about.declared.part_size,
            parts=[_part(part) for part in parts],
            received=ReceivedBytes(size=received.size, sha256=received.sha256),
            expires_at=about.touched + self._expiry,
        )


def _check_declared(request: BeginUpload, part_limit: int) -> Declared:
    if request.sha256 is not None and not _SHA256.fullmatch(request.sha256):
        raise common.refuse("sha256", request.sha256, "64 lower-case hex digits")
    if request.resume is not None and not _RESUME.fullmatch(request.resume):
        raise common.refuse("resume", request.resume, "1 to 64 letters, digits, '_', '.' or '-'")
    if request.size is not None and request.size < 0:
        raise common.refuse("size", request.size, "0 or more")
    if request.part_size is not None and not 1 <= request.part_size <= part_limit:
        raise common.refuse("part_size", request.part_size, f"1 to {part_limit}")
    if request.size and request.part_size and -(-request.size // request.part_size) > PARTS:
        raise common.refuse(
            "part_size", request.part_size, f"a size that makes at most {PARTS} parts"
        )
    return Declared(request.size, request.sha256, request.part_size)


def _id_for(whose: tuple[str, ...], request: BeginUpload, declared: Declared) -> str:
    """The same id for the same content or token of the same caller, so that to begin again is to
    go on.
    """
    if declared.sha256 is None and request.resume is None:
        return secrets.token_hex(16)
    fields = (*whose, declared.sha256 or "", str(declared.size), str(declared.part_size))
    text = "\n".join(fields if request.resume is None else (*fields, request.resume))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _part(part: Part) -> UploadPart:
    return UploadPart(number=part.number, size=part.size, sha256=part.sha256)
