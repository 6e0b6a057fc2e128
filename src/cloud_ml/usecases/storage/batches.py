"""Many small objects in one request, in either direction: each has its own outcome."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from cloud_ml.errors import (
    CloudMlError,
    Conflict,
    InvalidRequest,
    OutOfSpace,
    TooLarge,
    Unavailable,
)
from cloud_ml.models import common
from cloud_ml.models.storage import batches
from cloud_ml.models.storage.objects import BatchOutcome, BatchOutcomes
from cloud_ml.objects.base import ObjectStore, ObjectWriter
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.settings import StorageSettings
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.storage.objects import Storage, stored_object

_GATHERED_BYTES = 1 << 18
_TOGETHER = 64
"""Objects that are placed together; each holds two descriptors meanwhile."""


class BatchUpload(AbstractContextManager["BatchUpload"]):
    """Objects on their way in; leaving the ``with`` block without ``finish`` leaves no trace.
    Blocking.

    The body is gathered in one file. Objects are made when it is whole, a few at a time: a caller
    that sends slowly holds one descriptor, and the bucket's owner is asked when the objects are
    placed.
    """

    def __init__(
        self, storage: Storage, objects: ObjectStore, store: StateStore, org: str, bucket: str
    ) -> None:
        self._storage = storage
        self._objects = objects
        self._store = store
        self._org = org
        self._bucket = bucket
        self._share = storage.share(org)
        self._spool = objects.spool()
        self._bytes = 0

    def write(self, chunk: bytes) -> None:
        """Add bytes of the body.

        Raises:
            InvalidRequest: It is larger than a batch may be.
            QuotaExceeded: The quota of storage has no room for it.
            OutOfSpace: The disk is full.
        """
        limits = self._storage.settings
        most = limits.batch_bytes + limits.batch_objects * batches.LINE_BYTES
        self._bytes += len(chunk)
        if self._bytes > most:
            raise common.refuse("body", f"more than {most} bytes", f"at most {most} bytes")
        self._share.take(len(chunk))
        with _out_of_space():
            self._spool.write(chunk)

    def finish(self, once: Once | None) -> BatchOutcomes:
        """Make the objects visible, each as a whole. A replayed request is found out before that
        and changes nothing.

        Raises:
            Unauthenticated: ``once`` was seen before.
            InvalidRequest: The body was cut off, is no batch, or has too much in it.
            NotFound: The bucket is not the organisation's any more.
            QuotaExceeded: The organisation may not have so many objects.
            OutOfSpace: The disk is full.
        """
        self._check()
        if once is not None:
            self._store.remember(once)
        found = [outcome for group in self._groups() for outcome in self._place(group)]
        self._share.keep()
        return BatchOutcomes(items=[_outcome(key, one) for key, one in found])

    def abort(self) -> None:
        """Forget what came; harmless after ``finish``."""
        self._share.drop()
        self._spool.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()

    def _read(self) -> Iterator[batches.Entry | bytes]:
        reader = batches.EntryReader()
        with _out_of_space():  # what is buffered is written now
            self._spool.seek(0)
        while block := self._spool.read(_GATHERED_BYTES):
            yield from reader.feed(block)
        reader.end()

    def _check(self) -> None:
        """Refuse a body that is no batch, before anything of it is placed."""
        limits = self._storage.settings
        count = size = 0
        for read in self._read():
            if isinstance(read, bytes):
                continue
            count, size = count + 1, size + read.size
            if read.error is not None:
                raise common.refuse("body", "an error", "objects")
            if count > limits.batch_objects:
                raise common.refuse(
                    "body",
                    f"more than {limits.batch_objects} objects",
                    f"at most {limits.batch_objects} objects",
                )
            if size > limits.batch_bytes:
                raise common.refuse(
                    "body",
                    f"more than {limits.batch_bytes} bytes",
                    f"at most {limits.batch_bytes} bytes of objects",
                )
        if count > 1:  # one was taken into account when the batch began
            self._storage.check_objects(self._org, count - 1)

    def _groups(self) -> Iterator[Sequence[tuple[batches.Entry, bytes]]]:
        """The objects, as many at a time as are placed together."""
        group: list[tuple[batches.Entry, bytearray]] = []
        for read in self._read():
            if isinstance(read, bytes):
                group[-1][1].extend(read)
                continue
            if len(group) == _TOGETHER:
                yield [(entry, bytes(content)) for entry, content in group]
                group = []
            group.append((read, bytearray()))
        yield [(entry, bytes(content)) for entry, content in group]

    def _place(
        self, group: Sequence[tuple[batches.Entry, bytes]]
    ) -> Iterator[tuple[str, ObjectInfo | CloudMlError]]:
        writers: list[ObjectWriter | CloudMlError] = []
        try:
            for entry, content in group:
                writers.append(self._write_entry(entry, content))
            # Once they are open: from here on they lead into the folders that they have found.
            self._storage.check_own(self._org, self._bucket)
            whole = iter(
                self._objects.commit_all([one for one in writers if isinstance(one, ObjectWriter)])
            )
        finally:
            for writer in writers:
                if isinstance(writer, ObjectWriter):
                    writer.abort()
        for (entry, _), writer in zip(group, writers, strict=True):
            found = next(whole) if isinstance(writer, ObjectWriter) else writer
            if isinstance(found, ObjectInfo):
                self._storage.note_added(found)
            yield entry.key, found

    def _write_entry(self, entry: batches.Entry, content: bytes) -> ObjectWriter | CloudMlError:
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            return Conflict(
                f"the bytes of {entry.key} do not have the digest that was announced",
                field="sha256",
                value=entry.sha256,
                hint="the file changed while it was sent: send it again",
            )
        try:
            writer = self._objects.writer(self._bucket, entry.key)
        except (InvalidRequest, Conflict) as error:
            return error
        try:
            writer.write(content)
        except BaseException:
            writer.abort()
            raise
        return writer


class Batches:
    """What an organisation may do with many objects at once. Blocking; callers in an event loop
    use a thread.
    """

    def __init__(
        self, storage: Storage, objects: ObjectStore, store: StateStore, settings: StorageSettings
    ) -> None:
        self._storage = storage
        self._objects = objects
        self._store = store
        self._settings = settings

    def upload(self, org: str, bucket: str) -> BatchUpload:
        """Begin to take in objects.

        Raises:
            NotFound: No such bucket for this organisation.
            QuotaExceeded: The organisation's quota of storage is used up.
        """
        self._storage.check_own(org, bucket)
        self._storage.check_room(org, 0)
        return BatchUpload(self._storage, self._objects, self._store, org, bucket)

    def read(self, org: str, bucket: str, keys: Sequence[str]) -> Iterator[bytes]:
        """The body with these objects, in pieces. Each object is read as a whole before its line is
        written.

        Raises:
            NotFound: No such bucket for this organisation.
            InvalidRequest: There are too many keys.
        """
        self._storage.check_own(org, bucket)
        if len(keys) > (most := self._settings.batch_objects):
            raise common.refuse("keys", len(keys), f"at most {most} keys in one request")
        return self._pieces(org, bucket, keys)

    def _pieces(self, org: str, bucket: str, keys: Sequence[str]) -> Iterator[bytes]:
        gathered: list[bytes] = []
        size = 0
        for key in keys:
            for piece in self._object(org, bucket, key):
                gathered.append(piece)
                size += len(piece)
            if size >= _GATHERED_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
        if gathered:
            yield b"".join(gathered)

    def _object(self, org: str, bucket: str, key: str) -> Sequence[bytes]:
        try:
            info, chunks = self._objects.read(
                bucket, key, length=self._settings.batch_object_bytes + 1
            )
            # Checked after the object was opened: the bucket may be another organisation's by
            # now.
            self._storage.check_own(org, bucket)
            content = b"".join(chunks)
            if len(content) > self._settings.batch_object_bytes:
                limit = self._settings.batch_object_bytes
                raise TooLarge(
                    f"{key} is too large for a batch", field="key", allowed=f"at most {limit} bytes"
                )
            if len(content) != info.size:
                raise Unavailable(f"{key} changed while it was read", hint="read it again")
        except CloudMlError as error:
            return [batches.Entry(key, error=error.document()).line()]
        sha256 = hashlib.sha256(content).hexdigest()
        return [batches.Entry(key, len(content), sha256, info.etag).line(), content]


@contextlib.contextmanager
def _out_of_space() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutOfSpace(
            f"the batch cannot be kept: {error.strerror}", hint="free space, or send it later"
        ) from error


def _outcome(key: str, found: ObjectInfo | CloudMlError) -> BatchOutcome:
    if isinstance(found, ObjectInfo):
        return BatchOutcome(key=key, object=stored_object(found))
    return BatchOutcome(key=key, error=found.document())
