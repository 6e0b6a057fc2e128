"""Objects in memory: for tests and trials. It keeps the same contract as the stores that last."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO

from cloud_ml.errors import AlreadyExists, Conflict, NotFound
from cloud_ml.models.common import check_bucket, refuse
from cloud_ml.objects.base import (
    ObjectStore,
    ObjectWriter,
    check_object_key,
    check_range,
    other_version,
)
from cloud_ml.objects.info import Amount, Listing, ObjectInfo, UnnameableFile
from cloud_ml.objects.memory_multipart import MemoryMultipartUploads
from cloud_ml.objects.multipart import MultipartUploads


@dataclass(frozen=True, slots=True)
class _Object:
    info: ObjectInfo
    content: bytes


class MemoryObjectStore(ObjectStore):
    """Buckets as dictionaries; all is gone with the process.

    Args:
        clock: Gives the time of a write.
    """

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._buckets: dict[str, dict[str, _Object]] = {}
        self._lock = threading.Lock()
        self._making = threading.RLock()
        self._versions = itertools.count(1)
        self._multipart = MemoryMultipartUploads(self, clock)
        self._planted: dict[str, dict[bytes, int]] = {}

    @property
    def multipart(self) -> MultipartUploads:
        """Uploads in parts."""
        return self._multipart

    @contextlib.contextmanager
    def bucket_lock(self, bucket: str, *, shared: bool = False) -> Iterator[None]:
        """One lock for all buckets, shared by nobody: that is safe, too."""
        with self._making:
            yield

    def create_bucket(self, bucket: str, *, tenant: int | None = None, new: bool = False) -> None:
        """Make a bucket; ``tenant`` means nothing here."""
        check_bucket("bucket", bucket)
        if new:
            self.set_aside(bucket)
        with self._lock:
            self._buckets.setdefault(bucket, {})

    def set_aside(self, bucket: str) -> str:
        """Nothing outlives the process, so what nobody owns is dropped."""
        with self._lock:
            found = self._buckets.pop(bucket, None)
        self._drop_uploads(bucket)
        return "nowhere" if found else ""

    def delete_bucket(self, bucket: str, *, force: bool = False) -> None:
        """Remove an empty bucket, with ``force`` any."""
        with self._lock:
            if self._buckets.get(bucket) and not force:
                raise Conflict(f"the bucket {bucket} holds objects", field="bucket", value=bucket)
            self._buckets.pop(bucket, None)
        self._drop_uploads(bucket)

    def buckets(self) -> Sequence[str]:
        """Every bucket's name, sorted."""
        with self._lock:
            return sorted(self._buckets)

    def has_bucket(self, bucket: str) -> bool:
        """Whether the bucket exists."""
        with self._lock:
            return bucket in self._buckets

    def head(self, bucket: str, key: str) -> ObjectInfo | None:
        """What is known of the object."""
        check_object_key(key)
        with self._lock:
            found = self._bucket(bucket).get(key)
        return found.info if found else None

    def read(
        self, bucket: str, key: str, *, start: int = 0, length: int | None = None
    ) -> tuple[ObjectInfo, Iterator[bytes]]:
        """The object's facts and its bytes, in one chunk."""
        check_object_key(key)
        check_range(start, length)
        with self._lock:
            found = self._bucket(bucket).get(key)
        if found is None:
            raise NotFound(f"there is no object {key} in {bucket}", field="key", value=key)
        piece = found.content[start : None if length is None else start + length]
        return found.info, iter([piece] if piece else [])

    def digest(
        self, bucket: str, key: str, *, stop: Callable[[], bool] = lambda: False
    ) -> ObjectInfo:
        """The object's facts; every one knows its digest here."""
        return self.read(bucket, key)[0]

    def writer(self, bucket: str, key: str, *, only_if_absent: bool = False) -> ObjectWriter:
        """Begin an upload."""
        check_object_key(key)
        with self._lock:
            objects = self._bucket(bucket)
            _check_place(objects, key)
        return _MemoryWriter(self, bucket, key, only_if_absent, objects)

    def spool(self) -> IO[bytes]:
        """Memory."""
        return io.BytesIO()

    def list(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: bool = False,
        after: str = "",
        limit: int = 1000,
    ) -> Listing:
        """A page of a bucket."""
        if limit < 1:
            raise refuse("limit", limit, "1 or more")
        with self._lock:
            objects = self._bucket(bucket).copy()
        # Folders stand as None; a dictionary keeps each once, and they come in order with the keys.
        entries: dict[str, ObjectInfo | None] = {}
        for key in sorted(key for key in objects if key.startswith(prefix)):
            inner, slash, _ = key[len(prefix) :].partition("/")
            is_folder = delimiter and bool(slash)
            entries[prefix + inner + "/" if is_folder else key] = (
                None if is_folder else objects[key].info
            )
        names = [name for name in entries if name > after]
        page = names[:limit]
        return Listing(
            objects=[info for name in page if (info := entries[name])],
            folders=[name for name in page if entries[name] is None],
            next=page[-1] if len(names) > limit else None,
        )

    def amount(
        self, bucket: str, prefix: str = "", *, stop: Callable[[], bool] = lambda: False
    ) -> Amount:
        """How much is stored."""
        with self._lock:
            objects = self._bucket(bucket).copy()
        found = [one.info.size for key, one in objects.items() if key.startswith(prefix)]
        return Amount(0, 0, complete=False) if stop() else Amount(len(found), sum(found))

    def plant(self, bucket: str, path: bytes, size: int = 0) -> None:
        """Put a file there whose path can be no key, as a job does."""
        self._planted.setdefault(bucket, {})[path] = size

    def unnameable(
        self, bucket: str, prefix: bytes = b"", *, deep: bool = True, limit: int = 1000,
        stop: Callable[[], bool] = lambda: False,
    ) -> Sequence[UnnameableFile]:  # fmt: skip
        """What was planted."""
        found = sorted(self._planted.get(bucket, {}).items())
        shown = [
            (path, size)
            for path, size in found
            if path.startswith(prefix) and (deep or b"/" not in path[prefix.rfind(b"/") + 1 :])
        ]
        return [
            UnnameableFile(path, size, self._clock().timestamp()) for path, size in shown[:limit]
        ]

    def delete_unnameable(self, bucket: str, path: bytes) -> bool:
        """Remove what was planted."""
        return self._planted.get(bucket, {}).pop(path, None) is not None

    def delete(self, bucket: str, key: str, *, etag: str | None = None) -> bool:
        """Remove the object, or only one version of it."""
        check_object_key(key)
        with self._lock:
            found = self._bucket(bucket).get(key)
            if found is not None and etag not in (None, found.info.etag):
                raise other_version(bucket, key, etag or "")
            return self._bucket(bucket).pop(key, None) is not None

    def store(
        self,
        bucket: str,
        key: str,
        content: bytes,
        *,
        only_if_absent: bool,
        objects: dict[str, _Object],
    ) -> ObjectInfo:
        """Put a finished upload in its place; for the writer, whose bucket is ``objects``."""
        with self._lock:
            # The bucket may have been removed and created again since the upload began.
            if self._bucket(bucket) is not objects:
                raise NotFound(f"there is no bucket {bucket}", field="bucket", value=bucket)
            _check_place(objects, key)
            if only_if_absent and key in objects:
                raise AlreadyExists(
                    f"there is an object {key} in {bucket} already", field="key", value=key
                )
            digest = hashlib.sha256(content).hexdigest()
            info = ObjectInfo(
                bucket, key, len(content), self._clock(), f"{next(self._versions):x}", digest
            )
            objects[key] = _Object(info, content)
            return info

    def _drop_uploads(self, bucket: str) -> None:
        for upload in self._multipart.all(bucket):
            self._multipart.drop(bucket, upload.id)

    def _bucket(self, bucket: str) -> dict[str, _Object]:
        try:
            return self._buckets[bucket]
        except KeyError:
            raise NotFound(f"there is no bucket {bucket}", field="bucket", value=bucket) from None


class _MemoryWriter(ObjectWriter):
    def __init__(
        self,
        store: MemoryObjectStore,
        bucket: str,
        key: str,
        only_if_absent: bool,
        objects: dict[str, _Object],
    ) -> None:
        self._store = store
        self._objects = objects
        self._bucket = bucket
        self._key = key
        self._only_if_absent = only_if_absent
        self._chunks: list[bytes] | None = []

    def write(self, chunk: bytes) -> None:
        if self._chunks is None:
            raise ValueError("the upload is over")
        self._chunks.append(bytes(chunk))

    @property
    def sha256(self) -> str:
        return hashlib.sha256(b"".join(self._chunks or ())).hexdigest()

    def commit(self) -> ObjectInfo:
        if self._chunks is None:
            raise ValueError("the upload is over")
        content, self._chunks = b"".join(self._chunks), None
        return self._store.store(
            self._bucket,
            self._key,
            content,
            only_if_absent=self._only_if_absent,
            objects=self._objects,
        )

    def abort(self) -> None:
        self._chunks = None


def _check_place(objects: dict[str, _Object], key: str) -> None:
    """Refuse a key that is a folder of other objects, or that has an object for a folder."""
    if any(other.startswith(key + "/") for other in objects):
        raise Conflict(f"{key} is a folder", field="key", value=key)
    folders = itertools.accumulate(key.split("/")[:-1], lambda upper, name: f"{upper}/{name}")
    for folder in folders:
        if folder in objects:
            raise Conflict(
                f"{folder} is an object, so {key} cannot lie below it", field="key", value=key
            )
