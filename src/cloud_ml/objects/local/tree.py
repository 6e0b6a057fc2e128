"""The few ways in which a bucket's tree is touched: name by name, never through a link.

Names are bytes, whatever the locale says. Functions raise ``OSError`` as the system does;
``translate_errors`` turns what a caller can understand into errors of ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.errors import Conflict, OutOfSpace, Unavailable

_libc = ctypes.CDLL(None, use_errno=True)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Without O_NONBLOCK, opening a pipe that a job has planted would wait for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV})
"""What the system says where no object is: nothing there, or something else than was looked for."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom new files and folders are given to, and whether the group may use them."""

    uid: int
    gid: int
    shared: bool

    @classmethod
    def of(cls, folder: int) -> Owner:
        """The owner of an open folder. Only root can give files away, so only then it counts."""
        status = os.fstat(folder)
        return cls(status.st_uid, status.st_gid, shared=os.geteuid() == 0)

    def misses(self, descriptor: int) -> bool:
        """Whether a crash came between the making of this folder and its handing over."""
        return self.uid != os.geteuid() == os.fstat(descriptor).st_uid

    def adopt(self, descriptor: int) -> None:
        """Hand over what this process has made."""
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            return  # a job has put something of its own in the place meanwhile
        if self.shared:
            os.fchown(descriptor, self.uid, self.gid)
        os.fchmod(
            descriptor,
            (0o700 if stat.S_ISDIR(status.st_mode) else 0o600) | (0o070 if self.shared else 0),
        )


def key_parts(key: str) -> tuple[bytes, ...]:
    """A checked key as names."""
    return tuple(part.encode() for part in key.split("/"))


@contextlib.contextmanager
def open_folder(folder: int, parts: Sequence[bytes] = ()) -> Iterator[int]:
    """The folder at ``parts`` below ``folder``, open meanwhile."""
    descriptor = _descend(folder, parts)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_if_there(folder: int, parts: Sequence[bytes]) -> Iterator[int | None]:
    """Like ``open_folder``; ``None`` if there is no such folder."""
    descriptor: int | None = None
    try:
        descriptor = _descend(folder, parts)
    except OSError as error:
        if error.errno not in ABSENT:
            raise
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _descend(folder: int, parts: Sequence[bytes]) -> int:
    """A new descriptor of the folder at ``parts`` below an open one."""
    descriptor = os.dup(folder)
    try:
        for part in parts:
            descriptor, upper = os.open(part, _FOLDER, dir_fd=descriptor), descriptor
            os.close(upper)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def opened_path(path: Path) -> Iterator[int]:
    """A folder of the store itself, open meanwhile. No job can write there, so its path is
    trusted.
    """
    descriptor = os.open(path, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def make_folder(folder: int, parts: Sequence[bytes], owner: Owner) -> Iterator[int]:
    """Like ``opened``; what is absent is made, durably."""
    descriptor = os.dup(folder)
    try:
        for part in parts:
            descriptor, upper = _enter_or_make(descriptor, part, owner), descriptor
            os.close(upper)
        yield descriptor
    finally:
        os.close(descriptor)


def _enter_or_make(folder: int, name: bytes, owner: Owner) -> int:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
        fresh = True
    except FileExistsError:
        fresh = False
    descriptor = os.open(name, _FOLDER, dir_fd=folder)
    try:
        if fresh or owner.misses(descriptor):
            owner.adopt(descriptor)
            # The folder itself for its owner and mode, the one above for its name.
            os.fsync(descriptor)
            os.fsync(folder)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync(folder: Path) -> None:
    """Wait until the names in a folder of the store itself are on the disk."""
    with opened_path(folder) as descriptor:
        os.fsync(descriptor)


def sync_file_system(folder: int) -> None:
    """Wait until all that was written to the file system of an open folder is on the disk."""
    if _libc.syncfs(folder):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def open_file(folder: int, name: bytes) -> int | None:
    """A plain file, open for reading; ``None`` for a link, a pipe, a folder or nothing."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def file_status(folder: int, name: bytes) -> os.stat_result | None:
    """The status of a plain file; ``None`` for a link, a pipe, a folder or nothing."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise
    return status if stat.S_ISREG(status.st_mode) else None


def remove_file(folder: int, name: bytes) -> bool:
    """Remove a plain file, durably; returns whether there was one."""
    if file_status(folder, name) is None:
        return False
    try:
        os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, IsADirectoryError):
        return False
    os.fsync(folder)
    return True


def is_folder(folder: int, name: bytes) -> bool:
    """Whether a real folder stands under the name."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def translate_errors(bucket: str, key: str = "") -> Iterator[None]:
    """Turn a full disk, a thing in the way and a closed folder into errors that say so.

    Raises:
        OutOfSpace: The disk is full, read-only, or its quota is used up.
        Conflict: Something on the way is no folder, or its owner has closed it.
        Unavailable: A process has a lease on the file.
    """
    where = f"{bucket}/{key}" if key else bucket
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise OutOfSpace(
                f"{where} cannot be written: {os.strerror(error.errno)}",
                hint="free space, or wait for the operator",
            ) from error
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise Conflict(
                f"{where} has something in its path that is no folder: an object, or a link "
                "of a job's",
                field="key",
                value=key,
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise Conflict(
                f"{where} is closed by its permissions",
                field="key",
                value=key,
                hint="open it from within a job",
            ) from error
        if error.errno == errno.EWOULDBLOCK:  # see fcntl(2), F_SETLEASE
            raise Unavailable(
                f"{where} is not to be read while a process has a lease on it", hint="try again"
            ) from error
        raise
