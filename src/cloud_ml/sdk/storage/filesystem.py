"""``fds://`` for everything that reads files through fsspec: pandas, PyArrow, Dask, TensorBoard.

It is found by its name where the package is installed: ``pandas.read_csv("fds://bucket/a.csv")``.
Who asks is the user of the command line: see ``CloudMlClient``.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from cloud_ml.client import CloudMlClient
from cloud_ml.errors import (
    AlreadyExists,
    CloudMlError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
)
from cloud_ml.models.storage.objects import StoredObject

SCHEME = "fds://"
_KEPT_IN_MEMORY = 16 * 2**20


class FdsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Buckets as folders, objects as files. What is listed is never kept: others write too.

    Args:
        client: Asks the server; by default one with what the command line has been told.
        context: Another context of the configuration file.
        options: What fsspec knows for every file system.

    Raises:
        FileNotFoundError: There is no such object or bucket, or it is somebody else's.
        PermissionError: The caller's role may not do that.
        OSError: An object was replaced while it was read.
        ValueError: The name can be no object.
    """

    protocol = ("fds",)
    root_marker = ""
    async_impl = False

    def __init__(
        self, client: CloudMlClient | None = None, context: str | None = None, **options: Any
    ) -> None:
        super().__init__(**{"use_listings_cache": False, **options})
        self._storage = (client or CloudMlClient(context=context)).storage

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """What stands in a folder or bucket, or all buckets for the root."""
        path = self._strip_protocol(path)
        with _errors(path):
            found = self._list_folder(path) if path else self._buckets()
            if "/" in path and not found:
                found = [self._file(path)]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """What is known of a file or folder: ``name``, ``size``, ``type``, ``modified``, ``etag``."""
        path = self._strip_protocol(path)
        if not path:
            return _folder("")
        with _errors(path):
            if "/" in path:
                with contextlib.suppress(NotFound):
                    return self._file(path)
            elif any(entry["name"] == path for entry in self._buckets()):
                return _folder(path)
            if self._has_files(path):
                return _folder(path)
        raise FileNotFoundError(f"there is no {SCHEME}{path}")

    def modified(self, path: str) -> datetime:
        """When a file was stored."""
        found: datetime = self._get_field(path, "modified")
        return found

    def created(self, path: str) -> datetime:
        """The same: an object is stored as a whole."""
        return self.modified(path)

    def ukey(self, path: str) -> str:
        """What changes with the content of a file."""
        found: str = self._get_field(path, "etag")
        return found

    def sign(self, path: str, expiration: float = 3600, **_: Any) -> str:
        """A link that reads the file for whoever has it, for so many seconds."""
        with _errors(path):
            return self._storage.presign(self._uri(path), expires_s=expiration)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """A file as a whole, or a part of it; negative places count from its end."""
        with _errors(path):
            if start is None and end is None:
                with self._storage.open(self._uri(path)) as answer:
                    return answer.read()
            known = self.info(path)
            first, behind = slice(start, end).indices(known["size"])[:2]
            return self._storage.read_range(self._uri(path), first, behind, etag=known["etag"])

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Store bytes."""
        with _errors(path):
            self._storage.upload_bytes(value, self._uri(path), only_if_absent=mode == "create")

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy a file within the server."""
        if self.isdir(path1):  # a folder is there as soon as there is something in it
            return
        with _errors(path1):
            self._storage.copy(self._uri(path1), self._uri(path2))

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a bucket. Folders need not be made."""
        bucket, _, below = self._strip_protocol(path).partition("/")
        with _errors(bucket):
            if not below or create_parents:
                self._storage.create_bucket(bucket)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """The same; a folder that has files is there already.

        Raises:
            FileExistsError: It is, and ``exist_ok`` is not given.
        """
        if not exist_ok and self.exists(path):
            raise FileExistsError(path)
        self.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty bucket. A folder is gone with its last file."""
        bucket, _, below = self._strip_protocol(path).partition("/")
        if not below:
            with _errors(bucket):
                self._storage.delete_bucket(bucket)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files; with ``recursive`` also what is below folders, and buckets.

        Raises:
            IsADirectoryError: It is a folder, and ``recursive`` is not given.
        """
        # Backwards: what is in a folder or bucket stands behind it in the list.
        for name in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            if "/" not in name:
                self.rmdir(name)
            elif self.isfile(name):
                self._rm(name)
            elif not recursive:
                self.info(name)  # if there is such a folder
                raise IsADirectoryError(name)

    def _rm(self, path: str) -> None:
        with _errors(path):
            self._storage.delete(self._uri(path))

    def _open(
        self, path: str, mode: str = "rb", block_size: int | str | None = None, **options: Any
    ) -> _File:
        options.pop("autocommit", None)
        with _errors(path):
            return _File(self, path, mode, block_size or "default", **options)

    def _uri(self, path: str) -> str:
        return f"{SCHEME}{self._strip_protocol(path)}"

    def _get_field(self, path: str, field: str) -> Any:
        known = self.info(path)
        if field not in known:
            raise IsADirectoryError(path)
        return known[field]

    def _file(self, path: str) -> dict[str, Any]:
        return _of(self._storage.head(f"{SCHEME}{path}"))

    def _buckets(self) -> list[dict[str, Any]]:
        return [_folder(bucket.name) for bucket in self._storage.list_buckets()]

    def _has_files(self, folder: str) -> bool:
        pages = self._storage.pages(f"{SCHEME}{folder}/", limit=1)
        with contextlib.closing(pages):
            return any(page.objects for page in pages)

    def _list_folder(self, folder: str) -> list[dict[str, Any]]:
        bucket = folder.partition("/")[0]
        found = []
        for page in self._storage.pages(f"{SCHEME}{folder}/", folders=True):
            found += [_folder(f"{bucket}/{name}".rstrip("/")) for name in page.folders]
            found += [_of(one) for one in page.objects]
        return sorted(found, key=lambda entry: str(entry["name"]))


class _File(AbstractBufferedFile):  # type: ignore[misc]
    """One version of an object to be read, or one that is made. It is stored when it is closed."""

    def __init__(self, fs: FdsFileSystem, path: str, mode: str, *more: Any, **options: Any) -> None:
        self._content: IO[bytes] | None = None
        super().__init__(fs, path, mode, *more, **options)
        if mode == "ab" and fs.exists(path):
            self._spool().write(fs.cat_file(path))
            self.loc = self._spool().tell()

    def _fetch_range(self, start: int, end: int) -> bytes:
        storage, uri = self.fs._storage, self.fs._uri(self.path)
        with _errors(self.path):
            try:
                return bytes(storage.read_range(uri, start, end, etag=self.details["etag"]))
            except Conflict as error:
                raise OSError(f"{uri} was replaced while it was read; open it again") from error

    def _initiate_upload(self) -> None:
        """Nothing goes before the end: an object appears as a whole."""

    def _upload_chunk(self, final: bool = False) -> bool:
        spool = self._spool()
        spool.write(self.buffer.getvalue())
        if not final:
            return True
        storage, uri = self.fs._storage, self.fs._uri(self.path)
        spool.seek(0)
        with _errors(self.path), spool:
            if self.mode == "xb":
                storage.upload_bytes(spool.read(), uri, only_if_absent=True)
            else:
                storage.upload_stream(spool, uri)
        return True

    def _spool(self) -> IO[bytes]:
        if self._content is None:
            self._content = tempfile.SpooledTemporaryFile(_KEPT_IN_MEMORY)  # noqa: SIM115
        return self._content


def _folder(path: str) -> dict[str, Any]:
    return {"name": path, "size": 0, "type": "directory"}


def _of(one: StoredObject) -> dict[str, Any]:
    return {
        "name": f"{one.bucket}/{one.key}",
        "size": one.size,
        "type": "file",
        "modified": one.modified,
        "etag": one.etag,
    }


@contextlib.contextmanager
def _errors(path: str) -> Iterator[None]:
    """What users of files expect to be raised."""
    try:
        yield
    except NotFound as error:
        raise FileNotFoundError(f"there is no {SCHEME}{path.removeprefix(SCHEME)}") from error
    except AlreadyExists as error:
        raise FileExistsError(f"{SCHEME}{path} exists already") from error
    except Forbidden as error:
        raise PermissionError(f"{path}: {error}") from error
    except InvalidRequest as error:
        raise ValueError(f"{path}: {error}") from error
    except CloudMlError as error:
        raise OSError(f"{path}: {error}") from error
