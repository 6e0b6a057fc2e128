"""Many small objects in one request, in either direction: each has its own outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from cloud_ml.errors import CloudMlError, Conflict, InvalidRequest, TooLarge, Unavailable
from cloud_ml.models import batches, common
from cloud_ml.models.storage import BatchOutcome, BatchOutcomes
from cloud_ml.objects.base import ObjectInfo, ObjectStore, ObjectWriter
from cloud_ml.settings import StorageSettings
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.coming_in import Share
from cloud_ml.usecases.storage import Storage, stored_object

_GATHERED_BYTES = 1 << 18


class BatchUpload(AbstractContextManager["BatchUpload"]):
    """Objects on their way in; leaving the ``with`` block without ``finish`` leaves no trace. Blocking."""

    def __init__(self, storage: Storage, objects: ObjectStore, store: StateStore, bucket: str, share: Share) -> None:
        self._storage = storage
        self._objects = objects
        self._store = store
        self._bucket = bucket
        self._share = share
        self._limits = storage.settings
        self._reader = batches.EntryReader()
        self._entries: list[batches.Entry] = []
        self._writers: list[ObjectWriter | CloudMlError] = []
        self._bytes = 0

    def write(self, chunk: bytes) -> None:
        """Add bytes of the body.

        Raises:
            InvalidRequest: It is no batch, or one of too much.
            QuotaExceeded: The quota of storage has no room for it.
            OutOfSpace: The disk is full.
        """
        for read in self._reader.feed(chunk):
            if isinstance(read, batches.Entry):
                self._begin(read)
                continue
            self._share.take(len(read))
            if isinstance(writer := self._writers[-1], ObjectWriter):
                writer.write(read)

    def finish(self, once: Once | None) -> BatchOutcomes:
        """Make the objects visible, each as a whole. A replayed request is found out before that and changes nothing.

        Raises:
            Unauthenticated: ``once`` was seen before.
            InvalidRequest: The body was cut off.
        """
        self._reader.end()
        if once is not None:
            self._store.remember(once)
        for place, (entry, writer) in enumerate(zip(self._entries, self._writers, strict=True)):
            if isinstance(writer, ObjectWriter) and writer.sha256 != entry.sha256:
                writer.abort()
                self._writers[place] = Conflict(
                    f"the bytes of {entry.key} do not have the digest that was announced",
                    field="sha256",
                    value=entry.sha256,
                    hint="the file changed while it was sent: send it again",
                )
        whole = iter(self._objects.commit_all([one for one in self._writers if isinstance(one, ObjectWriter)]))
        found = [next(whole) if isinstance(one, ObjectWriter) else one for one in self._writers]
        for info in found:
            if isinstance(info, ObjectInfo):
                self._storage.note_added(info)
        self._share.keep()
        return BatchOutcomes(items=[_outcome(entry.key, one) for entry, one in zip(self._entries, found, strict=True)])

    def abort(self) -> None:
        """Forget what came; harmless after ``finish``."""
        self._share.drop()
        for writer in self._writers:
            if isinstance(writer, ObjectWriter):
                writer.abort()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort()

    def _begin(self, entry: batches.Entry) -> None:
        most, limit = self._limits.batch_objects, self._limits.batch_bytes
        self._bytes += entry.size
        if len(self._entries) >= most:
            raise common.refuse("body", f"more than {most} objects", f"at most {most} objects in one request")
        if self._bytes > limit:
            raise common.refuse("body", f"more than {limit} bytes", f"at most {limit} bytes in one request")
        if entry.error is not None:
            raise common.refuse("body", "an error", "objects")
        self._entries.append(entry)
        try:
            self._writers.append(self._objects.writer(self._bucket, entry.key))
        except (InvalidRequest, Conflict) as error:
            self._writers.append(error)


class Batches:
    """What an organisation may do with many objects at once. Blocking; callers in an event loop use a thread."""

    def __init__(self, storage: Storage, objects: ObjectStore, store: StateStore, settings: StorageSettings) -> None:
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
        return BatchUpload(self._storage, self._objects, self._store, bucket, self._storage.share(org))

    def read(self, org: str, bucket: str, keys: Sequence[str]) -> Iterator[bytes]:
        """The body with these objects, in pieces. Each object is read as a whole before its line is written.

        Raises:
            NotFound: No such bucket for this organisation.
            InvalidRequest: There are too many keys.
        """
        self._storage.check_own(org, bucket)
        if len(keys) > (most := self._settings.batch_objects):
            raise common.refuse("keys", len(keys), f"at most {most} keys in one request")
        return self._pieces(bucket, keys)

    def _pieces(self, bucket: str, keys: Sequence[str]) -> Iterator[bytes]:
        gathered: list[bytes] = []
        size = 0
        for key in keys:
            for piece in self._object(bucket, key):
                gathered.append(piece)
                size += len(piece)
            if size >= _GATHERED_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
        if gathered:
            yield b"".join(gathered)

    def _object(self, bucket: str, key: str) -> Sequence[bytes]:
        try:
            info, chunks = self._objects.read(bucket, key, length=self._settings.batch_object_bytes + 1)
            content = b"".join(chunks)
            if len(content) > self._settings.batch_object_bytes:
                limit = self._settings.batch_object_bytes
                raise TooLarge(f"{key} is too large for a batch", field="key", allowed=f"at most {limit} bytes")
            if len(content) != info.size:
                raise Unavailable(f"{key} changed while it was read", hint="read it again")
        except CloudMlError as error:
            return [batches.Entry(key, error=error.document()).line()]
        sha256 = hashlib.sha256(content).hexdigest()
        return [batches.Entry(key, len(content), sha256, info.etag).line(), content]


def _outcome(key: str, found: ObjectInfo | CloudMlError) -> BatchOutcome:
    if isinstance(found, ObjectInfo):
        return BatchOutcome(key=key, object=stored_object(found))
    return BatchOutcome(key=key, error=found.document())
