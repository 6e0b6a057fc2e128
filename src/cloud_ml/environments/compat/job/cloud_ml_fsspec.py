"""``fds://`` in a job, for everything that reads files through fsspec: pandas, PyArrow, Dask.

It is the tree below ``$CLOUDML_STORAGE``, in which each bucket that the job sees is a folder. No
request goes to the server, and no access key is needed. Names and errors are those of the SDK's
file system, which code outside of jobs uses.

Standard library and fsspec only, and the syntax of Python 3.6, since any runtime may import it.
"""

import contextlib
import errno
import os
import shutil
import stat
from datetime import datetime, timezone

from fsspec.implementations.local import LocalFileOpener
from fsspec.spec import AbstractFileSystem

SCHEME = "fds://"
VARIABLE = "CLOUDML_STORAGE"


class MountedFileSystem(AbstractFileSystem):
    """Buckets as folders, objects as files.

    Args:
        options: What fsspec knows for every file system.

    Raises:
        FileNotFoundError: There is no such object, or the job sees no such bucket.
        PermissionError: The job may only read the bucket, or would make or remove one.
        ValueError: The name can be no object, or this is no job.
    """

    protocol = "fds"
    root_marker = ""

    def __init__(self, **options):
        root = os.environ.get(VARIABLE)
        if not root:
            raise ValueError(f"{SCHEME} leads to the buckets of a job, and {VARIABLE} is not set")
        self._root = root
        super().__init__(**dict({"use_listings_cache": False}, **options))

    def ls(self, path, detail=True, **kwargs):
        """What stands in a folder or bucket, or all buckets for the root."""
        path = self._strip_protocol(path)
        with _errors(path):
            local = self._local(path)
            names = sorted(os.listdir(local)) if os.path.isdir(local) else [""]
        found = [self.info(f"{path}/{name}".strip("/")) for name in names]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path, **kwargs):
        """What is known of a file or folder: ``name``, ``size``, ``type``, ``modified``."""
        path = self._strip_protocol(path)
        with _errors(path):
            local = self._local(path)
            try:
                known = os.stat(local)
            except FileNotFoundError:
                known = os.lstat(local)  # a link that leads nowhere
        if stat.S_ISDIR(known.st_mode):
            return {"name": path, "size": 0, "type": "directory"}
        return {
            "name": path,
            "size": known.st_size,
            "type": "file" if stat.S_ISREG(known.st_mode) else "other",
            "modified": datetime.fromtimestamp(known.st_mtime, tz=timezone.utc),
        }

    def modified(self, path):
        """When a file was stored."""
        known = self.info(path)
        if "modified" not in known:
            raise IsADirectoryError(SCHEME + known["name"])
        return known["modified"]

    def created(self, path):
        """The same: an object is stored as a whole."""
        return self.modified(path)

    def cp_file(self, path1, path2, **kwargs):
        """Copy a file."""
        if self.isdir(path1):  # a folder is there as soon as there is something in it
            return
        with _errors(path1):
            source = self._local(path1)
            os.stat(source)
        with _errors(path2):
            shutil.copyfile(source, self._parent_made(path2))

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        """Rename a file or a folder."""
        with _errors(path1):
            source = self._local(path1)
            os.stat(source)
            self._refuse_bucket(path1)
        with _errors(path2):
            shutil.move(source, self._parent_made(path2))

    def mkdir(self, path, create_parents=True, **kwargs):
        """Make a folder."""
        self._make_folders(path, exist_ok=False)

    def makedirs(self, path, exist_ok=False):
        """Make a folder."""
        self._make_folders(path, exist_ok=exist_ok)

    def rmdir(self, path):
        """Remove an empty folder."""
        with _errors(path):
            self._refuse_bucket(path)
            os.rmdir(self._local(path))

    def rm(self, path, recursive=False, maxdepth=None):
        """Remove files; with ``recursive`` also folders, and what is in them."""
        names = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
        for name in names:  # before anything is removed
            with _errors(name):
                self._refuse_bucket(name)
        for name in reversed(names):
            self._rm(name)

    def rm_file(self, path):
        """Remove a file."""
        self._rm(path)

    def _rm(self, path):
        with _errors(path):
            self._refuse_bucket(path)
            local = self._local(path)
            if os.path.isdir(local) and not os.path.islink(local):
                os.rmdir(local)
            else:
                os.remove(local)

    def _open(
        self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs
    ):
        with _errors(path):
            writes = "r" not in mode
            local = self._parent_made(path) if writes else self._local(path)
            return LocalFileOpener(local, mode, autocommit=autocommit, fs=self, **kwargs)

    def _make_folders(self, path, exist_ok):
        with _errors(path):
            os.makedirs(self._parent_made(path, bucket_is_there=exist_ok), exist_ok=exist_ok)

    def _parent_made(self, path, bucket_is_there=False):
        """Where a file is to be made. Folders need not be made before."""
        path = self._strip_protocol(path)
        bucket, _, below = path.partition("/")
        local = self._local(path)
        if not below and not bucket_is_there:
            raise PermissionError(errno.EPERM, "a job makes no buckets, and no files beside them")
        if not os.path.isdir(self._local(bucket)):
            raise FileNotFoundError(errno.ENOENT, "the job sees no such bucket")
        os.makedirs(os.path.dirname(local), exist_ok=True)
        return local

    def _refuse_bucket(self, path):
        if "/" not in self._strip_protocol(path):
            raise PermissionError(errno.EPERM, "a job moves and removes no buckets")

    def _local(self, path):
        """Where it is in the tree."""
        parts = [part for part in self._strip_protocol(path).split("/") if part]
        if "." in parts or ".." in parts or any("\0" in part for part in parts):
            raise ValueError(f"{SCHEME}{self._strip_protocol(path)} can be no object")
        return "/".join([self._root, *parts])


@contextlib.contextmanager
def _errors(path):
    """Names the URI in errors, and not the place in the tree."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # of shutil, in words
            raise
        uri = path if path.startswith(SCHEME) else SCHEME + path
        if error.errno == errno.EROFS:
            raise PermissionError(errno.EACCES, "the job may only read", uri) from error
        # Made of a number, an error has the type of the number.
        raise OSError(error.errno, error.strerror, uri) from error
