"""Uploads in several requests: part of the contract of an object store (``ObjectStore.multipart``).

Such an upload outlives connections, clients and servers. Its bytes come in parts, in any order,
each as often as need be; or they are appended segment by segment, each from where the one before it
ended. One upload takes only one of the two ways. Nobody sees anything of it until ``join`` makes
the object appear as a whole.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from cloud_ml.errors import Conflict, NotFound
from cloud_ml.models.common import refuse
from cloud_ml.objects.info import ObjectInfo

PARTS = 10_000
"""Most parts of one upload."""
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Declared:
    """What was said of the whole when an upload began; ``None`` for what was not. Held against
    it by ``join``.
    """

    size: int | None = None
    sha256: str | None = None
    part_size: int | None = None


@dataclass(frozen=True, slots=True)
class Multipart:
    """An upload in parts. ``touched`` is when the last part came."""

    id: str
    bucket: str
    key: str
    declared: Declared
    touched: datetime


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is kept. ``number`` counts from 1; ``size`` in bytes."""

    number: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Received:
    """What has been appended to an upload: so many bytes, and the SHA-256 of all of them."""

    size: int = 0
    sha256: str = hashlib.sha256().hexdigest()


class UploadWriter(abc.ABC):
    """Bytes on their way into an upload. Leaving the ``with`` block without ``commit`` leaves no
    trace of them.
    """

    @abc.abstractmethod
    def write(self, chunk: bytes) -> None:
        """Add bytes.

        Raises:
            OutOfSpace: The disk is full; what was written here is lost, the upload is not.
        """

    @abc.abstractmethod
    def abort(self) -> None:
        """Forget what was written here; harmless after ``commit``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()


class PartWriter(UploadWriter):
    """A part on its way in."""

    @abc.abstractmethod
    def commit(self) -> Part:
        """Keep the part, durably, in place of an older one with its number.

        Raises:
            NotFound: The upload is over.
            OutOfSpace: The disk is full.
        """


class SegmentWriter(UploadWriter):
    """A segment on its way to the end of an upload."""

    @property
    @abc.abstractmethod
    def sha256(self) -> str:
        """The digest of the whole upload so far, with what was written here."""

    @abc.abstractmethod
    def commit(self) -> Received:
        """Keep the segment.

        It survives the end of this process at once, and a power failure from ``join`` on. What a
        power failure has damaged is never taken for kept.

        Raises:
            NotFound: The upload is over.
        """


class MultipartUploads(abc.ABC):
    """The uploads of a store that take several requests. Thread-safe; several processes may share
    them.

    Methods that name an upload raise ``NotFound`` when there is none of that id in that bucket.
    """

    @abc.abstractmethod
    def begin(self, upload: str, bucket: str, key: str, declared: Declared) -> Multipart:
        """Begin an upload under an id of 32 hex digits; one that is under way is returned as it is.

        Raises:
            InvalidRequest: The key can name no object.
            NotFound: There is no such bucket.
            Conflict: The id is taken by an upload of another object.
        """

    @abc.abstractmethod
    def get(self, bucket: str, upload: str) -> Multipart:
        """An upload."""

    @abc.abstractmethod
    def all(self, bucket: str | None = None) -> Sequence[Multipart]:
        """The uploads under way, of one bucket or of all, by key and id."""

    def count(self, bucket: str) -> int:
        """How many uploads to a bucket are under way, or have just ended."""
        return len(self.all(bucket))

    def held(self, buckets: Collection[str]) -> int:
        """Bytes of all parts and segments that are kept for these buckets."""
        size = 0
        for one in itertools.chain.from_iterable(self.all(bucket) for bucket in buckets):
            with contextlib.suppress(NotFound):  # it ended at this moment
                size += self.size(one.bucket, one.id)
        return size

    def size(self, bucket: str, upload: str) -> int:
        """Bytes of an upload that are kept."""
        return (
            sum(part.size for part in self.parts(bucket, upload))
            + self.received(bucket, upload).size
        )

    @abc.abstractmethod
    def parts(self, bucket: str, upload: str) -> Sequence[Part]:
        """The parts that are kept, by number."""

    @abc.abstractmethod
    def writer(self, bucket: str, upload: str, number: int) -> PartWriter:
        """Take in a part.

        Raises:
            InvalidRequest: The number is not from 1 to ``PARTS``.
        """

    @abc.abstractmethod
    def received(self, bucket: str, upload: str) -> Received:
        """What has been appended."""

    @abc.abstractmethod
    def append(self, bucket: str, upload: str, offset: int) -> SegmentWriter:
        """Take in a segment that begins at byte ``offset``, which is where what was received ends.

        Raises:
            Conflict: What was received ends elsewhere, or the upload has parts.
            Unavailable: Another segment is on its way.
        """

    @abc.abstractmethod
    def join(
        self,
        bucket: str,
        upload: str,
        parts: Sequence[Part] | None = None,
        *,
        only_if_absent: bool = False,
    ) -> ObjectInfo:
        """Make the object of what has come; the upload is over then. Of two that join at once, one
        finds it over.

        ``parts`` are those the caller believes to have sent, in order; ``None`` means all, or what
        was appended.

        Raises:
            Conflict: A part is missing or another than the caller believes, or the whole is not
                what was declared; or the object cannot be placed, as for ``ObjectWriter.commit``.
                The upload goes on.
            AlreadyExists: ``only_if_absent``, and there is an object. The upload goes on.
            Unavailable: A segment is on its way.
            OutOfSpace: The disk is full. The upload goes on.
        """

    @abc.abstractmethod
    def drop(self, bucket: str, upload: str) -> None:
        """Forget an upload and its parts."""

    def drop_older(self, than: datetime) -> int:
        """Forget all uploads that were not touched since; returns how many."""
        dropped = 0
        for upload in self.all():
            if upload.touched < than:
                try:
                    self.drop(upload.bucket, upload.id)
                except NotFound:
                    continue
                dropped += 1
        return dropped


def check_upload_id(upload: str) -> str:
    """Refuse what can be no upload's id.

    Raises:
        NotFound: It cannot be one.
    """
    if not _ID.fullmatch(upload):
        raise no_upload(upload)
    return upload


def check_part_number(number: int) -> int:
    """Refuse numbers that no part has.

    Raises:
        InvalidRequest: It is one of them.
    """
    if not 1 <= number <= PARTS:
        raise refuse("number", number, f"a number from 1 to {PARTS}")
    return number


def no_upload(upload: str) -> NotFound:
    """The answer for an upload that is over, or never was."""
    return NotFound(
        f"there is no upload {upload[:40]}",
        field="upload",
        value=upload[:40],
        hint="it was completed or given up, or has expired; begin another one",
    )


def check_chosen(
    kept: Sequence[Part], chosen: Sequence[Part] | None, declared: Declared
) -> Sequence[Part]:
    """The parts to join. The first error is told.

    Raises:
        Conflict: A part is missing or differs, or their sizes do not add up to what was declared.
    """
    by_number = {part.number: part for part in kept}
    numbered = (
        [(part.number, part) for part in chosen] if chosen is not None else list(by_number.items())
    )
    if [number for number, _ in numbered] != list(range(1, len(numbered) + 1)):
        raise Conflict("the parts are not numbered from 1 on without a gap", field="parts")
    for number, part in numbered:
        if number not in by_number:
            raise Conflict(
                f"part {number} has not arrived", field="parts", value=number, hint="send it again"
            )
        if (by_number[number].sha256, by_number[number].size) != (part.sha256, part.size):
            raise Conflict(
                f"part {number} is another one than was sent", field="parts", value=number
            )
    size = sum(part.size for _, part in numbered)
    if declared.size is not None and size != declared.size:
        raise Conflict(
            f"the parts have {size} bytes in all, {declared.size} were declared",
            field="size",
            value=size,
        )
    return [part for _, part in numbered]


def check_offset(offset: int, received: Received) -> None:
    """Refuse a segment that does not begin where what was received ends.

    Raises:
        Conflict: It does not.
    """
    if offset != received.size:
        raise Conflict(
            f"the segment begins at byte {offset}, {received.size} bytes were received",
            field="offset",
            value=offset,
            allowed=str(received.size),
            hint="ask for the upload and go on from what was received",
        )


def mixed_upload(upload: str) -> Conflict:
    """The answer to a segment for an upload that has parts, and to a part for one with segments."""
    return Conflict(
        "an upload takes either parts or segments, not both", field="upload", value=upload
    )


def check_size(found: int, declared: Declared) -> None:
    """Compare the size of the whole with what was declared.

    Raises:
        Conflict: They differ.
    """
    if declared.size is not None and found != declared.size:
        raise Conflict(
            f"{found} bytes have come, {declared.size} were declared", field="size", value=found
        )


def check_digest(found: str, declared: Declared) -> None:
    """Compare the whole with what was declared.

    Raises:
        Conflict: They differ.
    """
    if declared.sha256 is not None and found != declared.sha256:
        raise Conflict(
            f"the whole has the SHA-256 {found}, declared was {declared.sha256}",
            field="sha256",
            value=found,
            hint="the file changed while it was sent: begin another upload",
        )
