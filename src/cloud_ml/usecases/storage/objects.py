"""Buckets with owners, and the objects in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from cloud_ml.domain.quotas import UNLIMITED, QuotaOf, QuotaSpec
from cloud_ml.errors import NotFound, OutOfSpace, Unavailable
from cloud_ml.models import common
from cloud_ml.models.common import memory_bytes
from cloud_ml.models.paths.escaping import escaped_whole, unescape_path
from cloud_ml.models.storage.objects import (
    Bucket,
    BucketUsage,
    CopyObject,
    ObjectPage,
    StorageUsage,
    StoredObject,
    UnnameableObject,
    UnnameableObjects,
)
from cloud_ml.objects.base import ObjectStore, ObjectWriter
from cloud_ml.objects.info import ObjectInfo
from cloud_ml.settings import StorageSettings
from cloud_ml.state.base import Once, StateStore
from cloud_ml.usecases.access.identities import Organisation
from cloud_ml.usecases.clock import Clock
from cloud_ml.usecases.storage.buckets import Buckets
from cloud_ml.usecases.storage.object_limit import ObjectLimit
from cloud_ml.usecases.storage.pending_uploads import PendingUploads, Share, no_room
from cloud_ml.usecases.storage.usage import UsageCounter

_LARGEST_RESERVE = 20
"""The part of a small disk that the reserve takes at most."""
_SCARCE_FILES = 0.02
"""Twice what the engine leaves to everybody: uploads stop before jobs have to end."""


class Upload(AbstractContextManager["Upload"]):
    """An upload under way; leaving the ``with`` block without ``finish`` leaves no trace.
    Blocking.
    """

    def __init__(
        self,
        writer: ObjectWriter,
        store: StateStore,
        counted: UsageCounter,
        share: Share,
        check_own: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer = writer
        self._check_own = check_own
        self._share = share
        self._store = store
        self._counted = counted

    def write(self, chunk: bytes) -> None:
        """Add bytes.

        Raises:
            QuotaExceeded: The quota of storage has no room for them.
        """
        self._share.take(len(chunk))
        self._writer.write(chunk)

    def finish(self, once: Once | None) -> StoredObject:
        """Make the object visible. A replayed request is found out before that and changes nothing.

        Raises:
            Unauthenticated: ``once`` was seen before.
            AlreadyExists: The object was to be new and is not.
            NotFound: The bucket is gone, or another organisation's by now.
        """
        # the writer has the bucket's folder open: whose it is now, it is until the end
        self._check_own()
        if once is not None:
            self._store.remember(once)
        info = self._writer.commit()
        self._counted.add(info.bucket, info.size)
        self._share.keep()
        return stored_object(info)

    def abort(self) -> None:
        """Forget the upload; harmless after ``finish``."""
        self._share.drop()
        self._writer.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()


class Storage:
    """What an organisation may do with its buckets. Blocking; callers in an event loop use a
    thread.

    A bucket that belongs to somebody else and one that does not exist get the same ``NotFound``.
    What takes long asks ``stop`` now and then.
    """

    def __init__(
        self,
        store: StateStore,
        objects: ObjectStore,
        clock: Clock,
        settings: StorageSettings | None = None,
        *,
        quota_of: QuotaOf = lambda _: QuotaSpec(),
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._quota_of = quota_of
        self._stop = stop
        self._store = store
        self._objects = objects
        self._clock = clock
        self._settings = settings or StorageSettings()
        self._buckets = Buckets(store, objects, clock, most=self._settings.buckets_per_org)
        self._object_limit = ObjectLimit(
            objects, self._buckets_of, self._settings.objects_per_org, stop
        )
        self._reserve = (
            memory_bytes(self._settings.disk_reserve) if self._settings.disk_reserve else 0
        )
        self._counted = UsageCounter(objects, clock, self._settings)
        self._pending = PendingUploads()

    @property
    def settings(self) -> StorageSettings:
        """What is allowed."""
        return self._settings

    def create_bucket(
        self, organisation: Organisation, name: str, *, owner: str = "", once: Once | None = None
    ) -> Bucket:
        """Make a bucket; one that the organisation has already is success. ``owner`` is the user
        who asks.

        Raises:
            InvalidRequest: The name is malformed.
            AlreadyExists: Another organisation has the name.
            Conflict: The organisation is gone.
        """
        return self._buckets.create(organisation, name, owner=owner, once=once)

    def buckets(self, org: str | None) -> list[Bucket]:
        """The organisation's buckets (everybody's, for ``None``), sorted by name."""
        return self._buckets.all(org)

    def mountable(self, org: str) -> Sequence[str]:
        """Names of the buckets that the organisation's jobs see, sorted. One that is being made
        or removed at this moment is waited for.

        Raises:
            LostBuckets: One has a record and no folder.
        """
        return self._buckets.mountable(org)

    def repair(self) -> None:
        """Give each bucket's record a place, and remove empty places without a record: at a
        start.
        """
        self._buckets.repair()

    def owns(self, org: str, bucket: str) -> bool:
        """Whether the bucket exists and is the organisation's."""
        return self._buckets.owns(org, bucket)

    def list(
        self,
        org: str,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: bool = False,
        after: str = "",
        limit: int = 1000,
    ) -> ObjectPage:
        """A page of objects whose keys start with ``prefix``, in byte order.

        Raises:
            NotFound: No such bucket for this organisation.
        """
        self.check_own(org, bucket)
        listing = self._objects.list(bucket, prefix, delimiter=delimiter, after=after, limit=limit)
        return ObjectPage(
            objects=[stored_object(info) for info in listing.objects],
            folders=list(listing.folders),
            next=listing.next,
        )

    def delete_bucket(
        self,
        organisation: Organisation,
        name: str,
        *,
        force: bool = False,
        once: Once | None = None,
    ) -> Bucket:
        """Remove an empty bucket, with the uploads to it that are under way; its name is free
        again.

        With ``force`` everything in it goes too.

        Raises:
            NotFound: No such bucket for this organisation.
            Conflict: There are objects in it, or it is where the organisation's trainers go.
        """
        return self._buckets.delete(organisation, name, force=force, once=once)

    def copy(self, org: str, request: CopyObject, *, once: Once | None = None) -> StoredObject:
        """Copy an object within the server, to a key of a bucket of the same organisation. Appears
        as a whole.

        Raises:
            NotFound: No such object or bucket for this organisation.
            Conflict: The key cannot be placed.
            AlreadyExists: The copy was to be new and is not.
        """
        chunks = self.read(org, request.source_bucket, request.source_key)[1]
        try:
            with self.upload(
                org, request.bucket, request.key, only_if_absent=request.only_if_absent
            ) as upload:
                for chunk in chunks:
                    if self._stop():
                        raise Unavailable(
                            "the server is going down; nothing was copied", hint="ask again"
                        )
                    upload.write(chunk)
                return upload.finish(once)
        finally:
            if (close := getattr(chunks, "close", None)) is not None:
                close()

    def head(self, org: str, bucket: str, key: str, *, digest: bool = False) -> StoredObject:
        """What is known of an object; with ``digest`` its SHA-256, for which it may have to be
        read.

        Raises:
            NotFound: No such object.
        """
        self.check_own(org, bucket)
        if digest:
            try:
                return stored_object(self._objects.digest(bucket, key, stop=self._stop))
            except NotFound:
                raise absent(bucket, key) from None
        info = self._objects.head(bucket, key)
        if info is None:
            raise absent(bucket, key)
        return stored_object(info)

    def read(
        self, org: str, bucket: str, key: str, *, start: int = 0, length: int | None = None
    ) -> tuple[StoredObject, Iterator[bytes]]:
        """An object's facts, and its bytes from ``start`` in chunks.

        Raises:
            NotFound: No such object.
        """
        self.check_own(org, bucket)
        info, chunks = self._objects.read(bucket, key, start=start, length=length)
        return stored_object(info), chunks

    def upload(self, org: str, bucket: str, key: str, *, only_if_absent: bool = False) -> Upload:
        """Begin an upload.

        Raises:
            NotFound: No such bucket for this organisation.
            InvalidRequest: The key can be no path.
            Conflict: The key is a folder of other objects, or one of its folders is an object.
            QuotaExceeded: The organisation's quota of storage is used up.
        """
        self.check_own(org, bucket)
        self.check_room(org, 0)
        writer = self._objects.writer(bucket, key, only_if_absent=only_if_absent)
        return Upload(
            writer, self._store, self._counted, self.share(org), lambda: self.check_own(org, bucket)
        )

    def usage(self, org: str) -> StorageUsage:
        """What the organisation stores, by bucket and in all; see ``UsageCounter`` for how fresh
        the figures are.
        """
        items = [self._counted.bucket(bucket.name) for bucket in self.buckets(org)]
        return StorageUsage(
            items=items,
            objects=sum(item.objects for item in items),
            bytes=sum(item.bytes for item in items),
            complete=all(item.complete for item in items),
        )

    def usage_below(self, org: str, bucket: str, prefix: str = "") -> BucketUsage:
        """What is stored in a bucket under keys that start with ``prefix``.

        Raises:
            NotFound: No such bucket for this organisation.
        """
        self.check_own(org, bucket)
        return self._counted.below(bucket, prefix) if prefix else self._counted.bucket(bucket)

    def delete(
        self, org: str, bucket: str, key: str, *, etag: str | None = None, once: Once | None = None
    ) -> StoredObject:
        """Remove an object, with ``etag`` only that version of it, and return what it was.

        Raises:
            NotFound: No such object.
            PreconditionFailed: The object has another version than ``etag``.
            Unauthenticated: ``once`` was seen before.
        """
        was = self.head(org, bucket, key)
        if once is not None:
            self._store.remember(once)
        if not self._objects.delete(bucket, key, etag=etag):
            raise absent(bucket, key)
        return was

    def unnameable(
        self, org: str, bucket: str, prefix: str, *, deep: bool, limit: int
    ) -> UnnameableObjects:
        """Files of a bucket whose paths can be no keys; ``prefix`` has escapes as their names do.

        Raises:
            NotFound: No such bucket for this organisation.
            InvalidRequest: ``prefix`` is not written so.
        """
        self.check_own(org, bucket)
        found = self._objects.unnameable(
            bucket, unescape_path(prefix), deep=deep, limit=limit + 1, stop=self._stop
        )
        items = [
            UnnameableObject(
                bucket=bucket, name=escaped_whole(one.path), size=one.size,
                modified=datetime.fromtimestamp(one.modified, tz=UTC),
            )
            for one in found[:limit]
        ]  # fmt: skip
        return UnnameableObjects(items=items, complete=len(found) <= limit)

    def delete_unnameable(
        self, org: str, bucket: str, name: str, *, once: Once | None = None
    ) -> None:
        """Remove such a file.

        Raises:
            NotFound: No such file, or no such bucket for this organisation.
            InvalidRequest: ``name`` is a key or malformed.
            Unauthenticated: ``once`` was seen before.
        """
        self.check_own(org, bucket)
        path = unescape_path(name)
        if once is not None:
            self._store.remember(once)
        if not self._objects.delete_unnameable(bucket, path):
            raise NotFound(
                f"there is no file fds://{bucket}/{name[:1024]}", field="name", value=name[:1024]
            )

    def room(self, org: str) -> int | None:
        """How many bytes more the quota allows beside what is there and under way, parts of uploads
        among it.

        ``None`` for any number. Counts only where there is a quota.
        """
        limit = self._quota_of(org).storage_bytes
        if limit is None or limit == UNLIMITED:
            return None
        # Read the pending uploads first: an upload that ends meanwhile counts twice, which is
        # better than not at all.
        under_way = self._pending.under_way(org)
        usage = self.usage(org)
        parts = self._objects.multipart.held({item.bucket for item in usage.items})
        return max(0, limit - usage.bytes - parts - under_way)

    def share(self, org: str) -> Share:
        """The room for one more upload, shared with those that are under way."""
        return self._pending.begin(org, self.room(org), self._check_disk)

    def check_room(self, org: str, size: int, *, freed: int = 0) -> None:
        """Refuse ``size`` bytes that the quota has no room for; with none left, even an empty
        object.

        ``freed`` is what goes when they have come.

        Raises:
            QuotaExceeded: It has not, or the organisation has as many objects as it may have.
            OutOfSpace: The disk is nearly full.
        """
        self._check_disk()
        if not freed:
            self.check_objects(org)
        room = self.room(org)
        if room is not None:
            room += freed
        if room is not None and size >= room and (size > room or not room):
            raise no_room(room)

    def check_objects(self, org: str, more: int = 1) -> None:
        """Take ``more`` objects into account, or refuse them.

        Raises:
            QuotaExceeded: The organisation has as many objects as it may have.
        """
        self._object_limit.check(org, more)

    def _check_disk(self) -> None:
        """Refuse bytes that jobs and the database will need.

        Raises:
            OutOfSpace: The disk is nearly full.
        """
        if not self._reserve:
            return
        free, whole, part = self._objects.free()
        if free < min(self._reserve, whole / _LARGEST_RESERVE):
            left = common.format_memory(int(free))
            shortage = f"{left} are left on the server's disk (storage.disk_reserve)"
        elif part < _SCARCE_FILES:
            shortage = "the server's disk can hold hardly any more files"
        else:
            return
        raise OutOfSpace(
            f"{shortage}: nothing is stored any more", hint="free space, or wait for the operator"
        )

    def _buckets_of(self, org: str) -> Sequence[str]:
        return [bucket.name for bucket in self.buckets(org)]

    def check_own(self, org: str, bucket: str) -> None:
        """Refuse a bucket that is not the organisation's.

        Raises:
            NotFound: It is not, or there is none.
        """
        self._buckets.check_own(org, bucket)

    def note_added(self, info: ObjectInfo) -> None:
        """An object came in by another way than ``upload``; counts at once."""
        self._counted.add(info.bucket, info.size)


def absent(bucket: str, key: str) -> NotFound:
    """The answer for an object that is not there."""
    return NotFound(f"there is no object fds://{bucket}/{key}", field="key", value=key)


def stored_object(info: ObjectInfo) -> StoredObject:
    """An object's facts as the surfaces tell them."""
    return StoredObject(
        bucket=info.bucket,
        key=info.key,
        size=info.size,
        modified=info.modified,
        etag=info.etag,
        sha256=info.sha256,
    )
