"""``LocalObjectStore``: the contract of an object store over ``tree``, ``uploads`` and
``listing``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import IO

from cloud_ml import failpoints
from cloud_ml.environments.removing import remove
from cloud_ml.errors import CloudMlError, Conflict, InvalidRequest, NotFound
from cloud_ml.models.common import check_bucket, refuse
from cloud_ml.objects.base import ObjectStore, ObjectWriter, check_object_key, check_range
from cloud_ml.objects.info import Amount, Listing, ObjectInfo, UnnameableFile
from cloud_ml.objects.local import emptying, tree, unnameable
from cloud_ml.objects.local.counting import count_names
from cloud_ml.objects.local.listing import walk
from cloud_ml.objects.local.locks import BucketLocks
from cloud_ml.objects.local.multipart import LocalMultipartUploads
from cloud_ml.objects.local.noted import Notes
from cloud_ml.objects.local.transfer import Chunks, Content, LocalWriter, commit_all, object_info
from cloud_ml.objects.local.uploads import Uploads
from cloud_ml.objects.local.versions import remove_version
from cloud_ml.objects.multipart import MultipartUploads

_REMOVED = ".removed"
"""The folder of buckets that were removed with their content, until that is gone, too."""
_BUCKET_MARK = "bucket:"
"""Begins the name of a removed bucket's folder, beside folders of objects."""


class LocalObjectStore(ObjectStore):
    """Buckets are the folders ``<root>/<bucket>``; see the package for what may be in them.

    As root, a bucket's folder belongs to its tenant, and all that is written goes to the owner of
    the bucket's folder. Several processes may share a root.

    Args:
        root: The folder of all buckets; made if need be. On a read-only disk, reads go on.
        tenant_uid: The user and group id of an organisation's jobs, by the organisation's number;
            ``None`` where jobs run as this very user.
        lock_s: How long to wait for others that make or remove the same bucket.
    """

    def __init__(
        self, root: Path, tenant_uid: Callable[[int], int] | None = None, *, lock_s: float = 10.0
    ) -> None:
        self._root = root.absolute()
        self._tenant_uid = tenant_uid
        self._uploads = Uploads(self._root / ".uploads")
        with tree.translate_errors(str(self._root)):
            # Others may pass (to their own folder, which they know by name) but not look around.
            self._root.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._uploads.folder.mkdir(mode=0o700, exist_ok=True)
            parts = self._root / ".parts"
            parts.mkdir(mode=0o700, exist_ok=True)
            self._locks = BucketLocks(self._root / ".locks", lock_s)
            with contextlib.suppress(OSError):  # a disk that can only be read has them already
                for folder in (self._root.parent, self._root):
                    tree.sync(folder)
        self._notes = Notes(self._root)
        self._multipart = LocalMultipartUploads(parts, self._uploads, self._begin)
        self._uploads.sweep()
        self._multipart.sweep()

    @property
    def multipart(self) -> MultipartUploads:
        """Uploads in parts."""
        return self._multipart

    def bucket_lock(self, bucket: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Nobody else makes or removes the bucket meanwhile."""
        return self._locks.held(bucket, shared=shared)

    def create_bucket(self, bucket: str, *, tenant: int | None = None, new: bool = False) -> None:
        """Make a bucket; one that exists is success, and one that a crash has left half made is
        finished.
        """
        check_bucket("bucket", bucket)
        if new:
            self.set_aside(bucket)
        uid = (
            self._tenant_uid(tenant)
            if self._tenant_uid is not None and tenant is not None
            else os.geteuid()
        )
        owner = tree.Owner(
            uid, uid if uid != os.geteuid() else os.getegid(), shared=os.geteuid() == 0
        )
        with (
            tree.translate_errors(bucket),
            tree.opened_path(self._root) as root,
            tree.make_folder(root, [bucket.encode()], owner),
        ):
            os.fsync(root)

    def wrong_owner(self, bucket: str, tenant: int) -> str:
        """The command that gives the bucket's folder to the organisation's user, where another
        one has it.
        """
        if self._tenant_uid is None:
            return ""
        with contextlib.suppress(NotFound), self._open(bucket) as folder:
            uid, found = self._tenant_uid(tenant), os.fstat(folder).st_uid
            if uid != found:
                return (
                    f"chown -hR --from={found} {uid}:{uid} {shlex.quote(str(self._root / bucket))}"
                )
        return ""

    def repair_owner(self, bucket: str, tenant: int) -> bool:
        """Only where there is no file: of files nobody can tell whose they are, such as after a
        restore.
        """
        if self._tenant_uid is None or not self.wrong_owner(bucket, tenant):
            return True
        uid = self._tenant_uid(tenant)
        with tree.translate_errors(bucket), self._open(bucket) as folder:
            try:
                emptying.clear(folder, bucket)
            except Conflict:
                return False
            os.fchown(folder, uid, uid)
            os.fsync(folder)
        return True

    def set_aside(self, bucket: str) -> str:
        """Remove a folder without files; move one with files to ``.orphans``, where no job can
        see it.
        """
        try:
            self.delete_bucket(bucket)
        except Conflict:
            orphans = self._root / ".orphans"
            with tree.translate_errors(bucket):
                orphans.mkdir(mode=0o700, exist_ok=True)
                kept = orphans / f"{bucket}-{secrets.token_hex(8)}"
                (self._root / bucket).rename(kept)
                # A rename changes two folders. Both have to be on the disk.
                for folder in (orphans, self._root):
                    tree.sync(folder)
            self._multipart.drop_bucket(bucket)
            return str(kept)
        # A crash may have left uploads of a bucket whose folder is gone.
        self._multipart.drop_bucket(bucket)
        return ""

    def delete_bucket(self, bucket: str, *, force: bool = False) -> None:
        """Remove a bucket without objects, with empty folders and links that jobs have left there.

        With ``force`` its folder is moved to where no job can see it; ``reclaim`` removes what is
        in it.
        """
        if force:
            self._move_out_of_sight(bucket)
            return
        with (
            contextlib.suppress(NotFound),
            tree.translate_errors(bucket),
            self._open(bucket) as folder,
        ):
            if self._page(folder, bucket, limit=1).objects:
                raise Conflict(f"the bucket {bucket} holds objects", field="bucket", value=bucket)
            emptying.clear(folder, bucket)
            with tree.opened_path(self._root) as root, emptying.in_use_is_conflict(bucket):
                os.rmdir(bucket, dir_fd=root)
                os.fsync(root)
            self._multipart.drop_bucket(bucket)

    def _move_out_of_sight(self, bucket: str) -> None:
        with contextlib.suppress(NotFound), tree.translate_errors(bucket), self._open(bucket):
            removed = self._root / _REMOVED
            removed.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # somebody else was first
                (self._root / bucket).rename(
                    removed / f"{_BUCKET_MARK}{bucket}:{secrets.token_hex(8)}"
                )
            # A rename changes two folders. Both have to be on the disk.
            for folder in (removed, self._root):
                tree.sync(folder)
            failpoints.here("objects.remove.after")
        self._multipart.drop_bucket(bucket)

    def delete_folder(self, bucket: str, folder: str) -> None:
        """Move a folder to where no job can see it, and remove it there: however many files, in
        one step.
        """
        check_object_key(folder)
        *upper, name = tree.key_parts(folder)
        removed = self._root / _REMOVED
        doomed = f"{bucket}-{secrets.token_hex(8)}"
        with (
            self._folder(bucket, folder, upper) as (_, place),
            tree.translate_errors(bucket, folder),
        ):
            if place is None:
                return
            removed.mkdir(mode=0o700, exist_ok=True)
            with tree.opened_path(removed) as target, contextlib.suppress(FileNotFoundError):
                os.rename(name, doomed, src_dir_fd=place, dst_dir_fd=target)
                # Only where it was: ``reclaim`` removes whatever a power cut leaves at the other
                # end.
                os.fsync(place)
        remove(removed / doomed)

    def removed(self) -> Sequence[str]:
        """Buckets that were removed with ``force`` and whose space is not free yet."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / _REMOVED) as entries:
            marks = [
                entry.name.split(":") for entry in entries if entry.name.startswith(_BUCKET_MARK)
            ]
            return sorted({mark[1] for mark in marks})
        return ()

    def reclaim(self) -> None:
        """Remove what is in buckets that are gone, whatever jobs have left in them."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / _REMOVED) as entries:
            for entry in entries:
                remove(Path(entry.path))

    def buckets(self) -> Sequence[str]:
        """Every bucket's name, sorted."""
        with os.scandir(self._root) as entries:
            return sorted(
                e.name for e in entries if _is_bucket(e.name) and e.is_dir(follow_symlinks=False)
            )

    def has_bucket(self, bucket: str) -> bool:
        """Whether the bucket exists."""
        try:
            with self._open(bucket):
                return True
        except NotFound:
            return False

    def head(self, bucket: str, key: str) -> ObjectInfo | None:
        """What is known of the object."""
        check_object_key(key)
        *folders, name = tree.key_parts(key)
        with self._folder(bucket, key, folders) as (_, folder):
            status = None if folder is None else tree.file_status(folder, name)
        return object_info(bucket, key, status) if status else None

    def read(
        self, bucket: str, key: str, *, start: int = 0, length: int | None = None
    ) -> tuple[ObjectInfo, Iterator[bytes]]:
        """The object's facts and its bytes; the iterator also has ``close``."""
        check_range(start, length)
        descriptor = self._open_object(bucket, key)
        # Facts of the open file: its name may lead to another object by now.
        info = replace(
            object_info(bucket, key, os.fstat(descriptor)), sha256=self._notes.noted(descriptor)
        )
        most = max(info.size - start, 0)
        return info, Chunks(
            descriptor, f"{bucket}/{key}", start, most if length is None else min(length, most)
        )

    def digest(
        self, bucket: str, key: str, *, stop: Callable[[], bool] = lambda: False
    ) -> ObjectInfo:
        """The object's facts and digest, noted on the file, or computed and noted now."""
        descriptor = self._open_object(bucket, key)
        try:
            sha256 = self._notes.digest(descriptor, stop)
            return replace(object_info(bucket, key, os.fstat(descriptor)), sha256=sha256)
        finally:
            os.close(descriptor)

    def writer(self, bucket: str, key: str, *, only_if_absent: bool = False) -> ObjectWriter:
        """Begin an upload."""
        return self._begin(bucket, key, only_if_absent)

    def spool(self) -> IO[bytes]:
        """A file without a name, beside unfinished uploads."""
        with tree.translate_errors("the batch"):
            return tempfile.TemporaryFile(dir=self._uploads.folder)

    def commit_all(
        self, writers: Sequence[ObjectWriter], *, durable: bool = True
    ) -> Sequence[ObjectInfo | CloudMlError]:
        """Commit uploads together, which costs the disk little more than one of them."""
        return commit_all(
            [writer for writer in writers if isinstance(writer, LocalWriter)], durable=durable
        )

    def sync(self) -> None:
        """Flush the file system once, which for thousands of files costs less than to flush
        each.
        """
        with tree.translate_errors(str(self._root)), tree.opened_path(self._root) as root:
            tree.sync_file_system(root)

    def _begin(
        self, bucket: str, key: str, only_if_absent: bool, content: Content | None = None
    ) -> LocalWriter:
        """An upload, empty or with content that was written before, which is discarded when this
        fails.
        """
        try:
            check_object_key(key)
            with self._open(bucket) as top:
                _check_no_folder(top, bucket, key)
                return LocalWriter(
                    self._uploads,
                    bucket,
                    key,
                    only_if_absent,
                    folder=top,
                    notes=self._notes,
                    content=content,
                )
        except BaseException:
            if content is not None:
                self._uploads.discard(content.upload)
            raise

    def list(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: bool = False,
        after: str = "",
        limit: int = 1000,
    ) -> Listing:
        """A page of a bucket. Only plain files whose path can be a key are objects."""
        if limit < 1:
            raise refuse("limit", limit, "1 or more")
        with self._open(bucket) as folder:
            return self._page(folder, bucket, prefix, delimiter=delimiter, after=after, limit=limit)

    def amount(
        self, bucket: str, prefix: str = "", *, stop: Callable[[], bool] = lambda: False
    ) -> Amount:
        """How much is stored; asks ``stop`` before the first object and after every 256.

        Files that no key names count, too: jobs write to the folders of their buckets, and the room
        is taken.
        """
        objects = size = 0
        with (
            self._open(bucket) as folder,
            contextlib.closing(walk(folder, prefix, "", deep=True)) as entries,
        ):
            for _, status in entries:
                if objects % 256 == 0 and stop():
                    return Amount(objects, size, complete=False)
                objects += 1
                size += status.st_size if status else 0
        with self._open(bucket) as folder:
            others = unnameable.measure(folder, prefix, stop)
        return Amount(objects + others.objects, size + others.size, complete=others.complete)

    def unnameable(
        self, bucket: str, prefix: bytes = b"", *, deep: bool = True, limit: int = 1000,
        stop: Callable[[], bool] = lambda: False,
    ) -> Sequence[UnnameableFile]:  # fmt: skip
        """Files that jobs have written under names that no key has."""
        with self._open(bucket) as folder:
            return unnameable.files(folder, prefix, deep=deep, limit=limit, stop=stop)

    def delete_unnameable(self, bucket: str, path: bytes) -> bool:
        """Remove such a file, and folders that become empty by it."""
        with self._open(bucket) as folder, tree.translate_errors(bucket):
            removed = unnameable.remove(folder, path)
            if removed:
                emptying.remove_empty(folder, path.split(b"/")[:-1])
            return removed

    def names(self, bucket: str, *, stop: Callable[[], bool] = lambda: False) -> int:
        """Names below the bucket's folder, and those of its uploads under way."""
        with self._open(bucket) as folder:
            return count_names(folder, stop) + self._multipart.names(bucket, stop)

    def free(self) -> tuple[float, float, float]:
        """As the file system says."""
        facts = os.statvfs(self._root)
        files = facts.f_favail / facts.f_files if facts.f_files else 1.0
        return facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize, files

    def delete(self, bucket: str, key: str, *, etag: str | None = None) -> bool:
        """Remove the object, or only one version of it, and folders that become empty by it."""
        check_object_key(key)
        *folders, name = tree.key_parts(key)

        def remove(folder: int, name: bytes) -> bool:
            if etag is None:
                return tree.remove_file(folder, name)
            return remove_version(self._uploads, folder, name, bucket=bucket, key=key, etag=etag)

        with self._folder(bucket, key, folders) as (top, folder):
            failpoints.here("objects.delete.before")
            removed = folder is not None and remove(folder, name)
            failpoints.here("objects.delete.after")
            if removed:
                emptying.remove_empty(top, folders)
        return removed

    def folder(self, bucket: str) -> Path:
        """The bucket's folder."""
        with self._open(bucket):
            return self._root / bucket

    def _page(
        self,
        folder: int,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: bool = False,
        after: str = "",
        limit: int,
    ) -> Listing:
        with contextlib.closing(walk(folder, prefix, after, deep=not delimiter)) as entries:
            found = list(itertools.islice(entries, limit + 1))
        page = found[:limit]
        return Listing(
            objects=[object_info(bucket, key, status) for key, status in page if status],
            folders=[key for key, status in page if not status],
            next=page[-1][0] if len(found) > limit else None,
        )

    def _open_object(self, bucket: str, key: str) -> int:
        """The object's file, open.

        Raises:
            NotFound: No such object.
        """
        check_object_key(key)
        *folders, name = tree.key_parts(key)
        with self._folder(bucket, key, folders) as (_, folder):
            descriptor = None if folder is None else tree.open_file(folder, name)
        if descriptor is None:
            raise NotFound(f"there is no object {key} in {bucket}", field="key", value=key)
        return descriptor

    @contextlib.contextmanager
    def _open(self, bucket: str) -> Iterator[int]:
        """The bucket's folder, open meanwhile."""
        absent = NotFound(f"there is no bucket {bucket}", field="bucket", value=bucket)
        if not _is_bucket(bucket):
            raise absent
        with (
            tree.opened_path(self._root) as root,
            tree.opened_if_there(root, [bucket.encode()]) as folder,
        ):
            if folder is None:
                raise absent
            yield folder

    @contextlib.contextmanager
    def _folder(
        self, bucket: str, key: str, folders: Sequence[bytes]
    ) -> Iterator[tuple[int, int | None]]:
        """The bucket's folder and the key's own, if there is one, open meanwhile."""
        with (
            self._open(bucket) as top,
            tree.translate_errors(bucket, key),
            tree.opened_if_there(top, folders) as folder,
        ):
            yield top, folder


def _check_no_folder(top: int, bucket: str, key: str) -> None:
    """Refuse a key that is a folder of the bucket whose open folder is ``top``.

    Raises:
        Conflict: It is.
    """
    *folders, name = tree.key_parts(key)
    with (
        tree.translate_errors(bucket, key),
        contextlib.suppress(FileNotFoundError),
        tree.open_folder(top, folders) as folder,
    ):
        if tree.is_folder(folder, name):
            raise Conflict(f"{bucket}/{key} is a folder", field="key", value=key)


def _is_bucket(name: str) -> bool:
    try:
        check_bucket("bucket", name)
    except InvalidRequest:
        return False
    return True
