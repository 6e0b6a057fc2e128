"""The contract of an object store. ``cloud_ml.testing.objects.ObjectStoreContract`` is the same in
code.

A bucket is a plain tree. Keys are paths (see ``models.common.check_key``); a key cannot be both an
object and a folder of others. Methods are synchronous and thread-safe; callers in an event loop use
a thread. Nobody sees a half-written object.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self, runtime_checkable

from cloud_ml.errors import CloudMlError, PreconditionFailed
from cloud_ml.models.common import check_key, refuse
from cloud_ml.objects.info import Amount, Listing, ObjectInfo, UnnameableFile
from cloud_ml.objects.multipart import MultipartUploads


def check_object_key(key: str) -> str:
    """A key that can name an object: a path that is not empty and does not end in '/'.

    Raises:
        InvalidRequest: It cannot.
    """
    if not key or key.endswith("/"):
        raise refuse("key", key, "a path that is not empty and does not end in '/'")
    return check_key("key", key)


def other_version(bucket: str, key: str, etag: str) -> PreconditionFailed:
    """The error for an object that has another version than ``etag``."""
    return PreconditionFailed(
        f"fds://{bucket}/{key} has changed: it no longer has the ETag that If-Match names",
        field="If-Match",
        value=etag[:200],
        hint="read the object again",
    )


def check_range(start: int, length: int | None) -> None:
    """Refuse a negative ``start`` or ``length`` of ``ObjectStore.read``."""
    if start < 0:
        raise refuse("start", start, "0 or more")
    if length is not None and length < 0:
        raise refuse("length", length, "0 or more")


class ObjectWriter(abc.ABC):
    """An upload under way. Leaving the ``with`` block without ``commit`` leaves no trace."""

    @abc.abstractmethod
    def write(self, chunk: bytes) -> None:
        """Add bytes.

        Raises:
            OutOfSpace: The disk is full; the upload is lost.
        """

    @abc.abstractmethod
    def commit(self) -> ObjectInfo:
        """Make the object visible, durable and whole, in place of an older one.

        Raises:
            AlreadyExists: ``only_if_absent`` was asked for and somebody came first.
            OutOfSpace: The disk is full; an older object under the key is untouched.
        """

    @abc.abstractmethod
    def abort(self) -> None:
        """Forget the upload; harmless after ``commit``."""

    @property
    @abc.abstractmethod
    def sha256(self) -> str:
        """The digest of what was written so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()


class ObjectStore(abc.ABC):
    """Buckets and the objects in them.

    Every method that names a key raises ``InvalidRequest`` for one that can be no path. Methods
    that name a bucket raise ``NotFound`` when it does not exist.
    """

    @property
    @abc.abstractmethod
    def multipart(self) -> MultipartUploads:
        """Uploads in parts."""

    @abc.abstractmethod
    def bucket_lock(self, bucket: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Nobody else makes or removes the bucket while the block runs, in this process or another.

        The state store and this one are two stores: a bucket's record and its folder come and go
        together only under this lock. With ``shared``, others that share may run at the same time.

        Raises:
            Unavailable: Others held it for too long.
        """

    @abc.abstractmethod
    def create_bucket(self, bucket: str, *, tenant: int | None = None, new: bool = False) -> None:
        """Make a bucket; one that exists is success.

        ``tenant`` is the number of the owning organisation, for stores that set file owners. With
        ``new`` the caller has just claimed the name: whatever is there belongs to nobody, and is
        set aside (see ``set_aside``).
        """

    def wrong_owner(self, bucket: str, tenant: int) -> str:
        """What an operator does about a bucket whose files the organisation's jobs cannot use;
        empty if they can.

        ``tenant`` is the number of the organisation.
        """
        del bucket, tenant
        return ""

    def repair_owner(self, bucket: str, tenant: int) -> bool:
        """Give a bucket without objects to the organisation of that number; whether it is its by
        now.
        """
        del bucket, tenant
        return True

    @abc.abstractmethod
    def set_aside(self, bucket: str) -> str:
        """Free the name of a bucket that nobody owns; no caller sees its content any more.

        Returns where the content is kept for the operator; empty if there was none.
        """

    @abc.abstractmethod
    def delete_bucket(self, bucket: str, *, force: bool = False) -> None:
        """Remove an empty bucket, and the uploads in parts that were under way; one that is gone is
        success.

        With ``force`` everything in it goes too, also what is no object: files that no key can
        name, folders that are too deep, links. The name is free at once, whatever a job does in the
        bucket meanwhile.

        Raises:
            Conflict: There are objects in it, and ``force`` is not given.
        """

    def removed(self) -> Sequence[str]:
        """Buckets that were removed with ``force`` and whose space is not free yet.

        New buckets may have taken their names since.
        """
        return ()

    def reclaim(self) -> None:
        """Free the space of buckets that were removed with ``force``. May take long; repeating
        it is harmless.
        """

    @abc.abstractmethod
    def buckets(self) -> Sequence[str]:
        """Every bucket's name, sorted."""

    @abc.abstractmethod
    def has_bucket(self, bucket: str) -> bool:
        """Whether the bucket exists; false for a name that no bucket can have."""

    @abc.abstractmethod
    def head(self, bucket: str, key: str) -> ObjectInfo | None:
        """What is known of the object, or ``None``. A folder is no object."""

    @abc.abstractmethod
    def read(
        self, bucket: str, key: str, *, start: int = 0, length: int | None = None
    ) -> tuple[ObjectInfo, Iterator[bytes]]:
        """The object's facts and its bytes from ``start``, in chunks; none if it ends before.

        The bytes are those of one version, whatever is written meanwhile.

        Raises:
            InvalidRequest: ``start`` or ``length`` is negative.
            NotFound: No such object.
            Unavailable: While iterating: somebody with direct access cut the file short.
        """

    @abc.abstractmethod
    def digest(
        self, bucket: str, key: str, *, stop: Callable[[], bool] = lambda: False
    ) -> ObjectInfo:
        """The object's facts, ``sha256`` among them: read and computed if nobody has noted it down.

        ``stop`` is asked now and then.

        Raises:
            NotFound: No such object.
            Unavailable: ``stop`` said so.
        """

    @abc.abstractmethod
    def writer(self, bucket: str, key: str, *, only_if_absent: bool = False) -> ObjectWriter:
        """Begin an upload.

        Raises:
            Conflict: The key is a folder of other objects, or one of its folders is an object. If
                that only comes about during the upload, ``commit`` raises it.
        """

    @abc.abstractmethod
    def spool(self) -> IO[bytes]:
        """A file without a name for bytes on their way, on the disk of the objects; it goes when
        it is closed.
        """

    def sync(self) -> None:
        """Have everything on the disk that was committed before.

        Raises:
            OutOfSpace: The disk is full.
        """

    def commit_all(
        self, writers: Sequence[ObjectWriter], *, durable: bool = True
    ) -> Sequence[ObjectInfo | CloudMlError]:
        """Commit uploads of this store, each for itself.

        Returns for each its object, or the error that its ``commit`` raises. Without ``durable``, a
        power cut before the next ``sync`` may take them away or empty them: for whoever has many to
        commit and can do it again.
        """
        found: list[ObjectInfo | CloudMlError] = []
        for writer in writers:
            try:
                found.append(writer.commit())
            except CloudMlError as error:
                found.append(error)
        return found

    @abc.abstractmethod
    def list(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: bool = False,
        after: str = "",
        limit: int = 1000,
    ) -> Listing:
        """Objects whose key starts with ``prefix``, in byte order of the keys.

        With ``delimiter``, keys that have a further '/' behind the prefix are given as folders
        (each once, ending in '/'). Only what sorts after ``after`` is given, at most ``limit`` of
        objects and folders together. A prefix that no key can have gives an empty list.

        Raises:
            InvalidRequest: ``limit`` is below 1.
        """

    @abc.abstractmethod
    def amount(
        self, bucket: str, prefix: str = "", *, stop: Callable[[], bool] = lambda: False
    ) -> Amount:
        """How much is stored under keys that start with ``prefix``.

        ``stop`` is asked now and then; once it says so, the answer is what was counted so far.
        """

    def names(self, bucket: str, *, stop: Callable[[], bool] = lambda: False) -> int:
        """How many objects, folders and files of uploads under way there are, or what else the
        store counts.

        ``stop`` is asked now and then; once it says so, the answer is what was counted so far.
        """
        return self.amount(bucket, stop=stop).objects

    def unnameable(
        self, bucket: str, prefix: bytes = b"", *, deep: bool = True, limit: int = 1000,
        stop: Callable[[], bool] = lambda: False,
    ) -> Sequence[UnnameableFile]:  # fmt: skip
        """Files under paths that start with ``prefix`` and can be no keys, at most ``limit``.

        Unless ``deep``, only those of one folder. A store without folders has none.
        """
        return ()

    def delete_unnameable(self, bucket: str, path: bytes) -> bool:
        """Remove such a file; returns whether there was one.

        Raises:
            InvalidRequest: The path is a key, or leaves the bucket.
        """
        return False

    def free(self) -> tuple[float, float, float]:
        """What is free for new objects: bytes, bytes in all, and the free part of all files that
        the store can hold.
        """
        return float("inf"), float("inf"), 1.0

    @abc.abstractmethod
    def delete(self, bucket: str, key: str, *, etag: str | None = None) -> bool:
        """Remove the object, with ``etag`` only that version of it; returns whether there was one.

        Raises:
            PreconditionFailed: The object has another version than ``etag``; it stays.
        """

    def delete_folder(self, bucket: str, folder: str) -> None:
        """Remove all objects whose key starts with ``folder`` and a '/', and whatever else a job
        has put there.

        A folder that is gone is success.
        """
        while objects := self.list(bucket, f"{folder}/").objects:
            for info in objects:
                self.delete(bucket, info.key)

    def put(
        self, bucket: str, key: str, content: bytes, *, only_if_absent: bool = False
    ) -> ObjectInfo:
        """Write a small object in one go."""
        with self.writer(bucket, key, only_if_absent=only_if_absent) as upload:
            upload.write(content)
            return upload.commit()

    def get(self, bucket: str, key: str) -> bytes:
        """Read a small object in one go.

        Raises:
            NotFound: No such object.
        """
        return b"".join(self.read(bucket, key)[1])


@runtime_checkable
class LocalFolders(Protocol):
    """A store whose buckets are folders of this machine, so that a job can have them mounted as
    they are.
    """

    def folder(self, bucket: str) -> Path:
        """The bucket's folder.

        Raises:
            NotFound: No such bucket.
        """
