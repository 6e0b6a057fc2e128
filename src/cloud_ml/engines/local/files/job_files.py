"""The files that a job left, read by the server while the job's user may still do anything to them.

Every name is opened below the descriptor of its folder and without following links (``job_links``
finds where they lead). A pipe, a socket or a device is skipped by its type and never opened for
long. Depth is kept on a list and not on the stack.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cloud_ml.domain.workloads.outputs import JobFile, Obstacle
from cloud_ml.engines.abilities import WorkingDirectory
from cloud_ml.engines.local.files import working_directory
from cloud_ml.engines.local.files.job_links import LinkedFile, LinkResolver
from cloud_ml.engines.local.files.working_directory import Manifest
from cloud_ml.engines.local.isolation.etc import HOME
from cloud_ml.models.paths.ignoring import ENVIRONMENT_MARKS

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that a job has put in the place of a file would wait for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ELOOP,
        errno.ENXIO,
        errno.ENODEV,
        errno.EACCES,
        errno.EPERM,
        errno.ENAMETOOLONG,
    }
)
_CHUNK = 1 << 18
_DEEPEST = working_directory.MAX_DEPTH
"""Folders inside each other. Each is open while those below it are walked."""


class _Sent:
    """What was in the directory before the job began, by path."""

    def __init__(self, manifest: Manifest) -> None:
        self._files = {
            os.fsencode(path): (file.size, file.mtime_ns) for path, file in manifest.files.items()
        }
        self._links = {
            os.fsencode(path): os.fsencode(text) for path, text in manifest.links.items()
        }

    def has_file(self, path: bytes, status: os.stat_result) -> bool:
        """Whether the file is as it was sent."""
        return self._files.get(path) == (status.st_size, status.st_mtime_ns)

    def has_link(self, path: bytes, text: bytes) -> bool:
        """Whether the link is as it was sent."""
        return self._links.get(path) == text


class LocalWorkingDirectory:
    """See ``engines.abilities.WorkingDirectory``.

    Args:
        top: Descriptor of the directory.
        owner: The user whose files these are.
        sent: What was in the directory before the job began.
        roots: The paths under which the job sees the directory.
    """

    def __init__(self, top: int, owner: int, sent: Manifest, roots: Sequence[bytes] = ()) -> None:
        self._top = top
        self._owner = owner
        self._sent = _Sent(sent)
        self._links = LinkResolver(self._open_below, roots)

    def files(self, enters: Callable[[bytes], bool]) -> Iterator[JobFile]:
        """New and changed files, one folder after the other, and what hides files: folders that
        cannot be walked.
        """
        levels = [_Level(os.dup(self._top), b"")]
        try:
            while levels:
                level = levels[-1]
                yield from self._files_of(level)
                if not level.folders:
                    level.close()
                    levels.pop()
                    continue
                name = level.folders.pop()
                if not enters(level.prefix + name):
                    continue
                path = level.prefix + name
                folder = (
                    _open_folder(level.folder, name)
                    if len(levels) <= _DEEPEST
                    else Obstacle.FOLDER_TOO_DEEP
                )
                if isinstance(folder, Obstacle):
                    yield JobFile(path, 0, obstacle=folder)
                elif folder is not None:
                    levels.append(_Level(folder, path + b"/"))
        finally:
            for level in levels:
                level.close()

    def _files_of(self, level: _Level) -> Iterator[JobFile]:
        """The new and changed files in the folder itself, the first time."""
        for name, status in level.entries():
            path = level.prefix + name
            if status is None:
                yield JobFile(path, 0, obstacle=Obstacle.FOLDER_CLOSED)
            elif stat.S_ISREG(status.st_mode):
                if not self._sent.has_file(path, status):
                    yield self._file(path, status)
            elif stat.S_ISLNK(status.st_mode):
                yield from self._linked_file(level, name)

    def _file(
        self, path: bytes, status: os.stat_result, link: bytes = b"", source: bytes = b""
    ) -> JobFile:
        # A name in this folder may be a hard link to another user's file.
        obstacle = None if status.st_uid == self._owner else Obstacle.FOREIGN
        return JobFile(path, status.st_size, status.st_mtime_ns, obstacle, link, source)

    def _linked_file(self, level: _Level, name: bytes) -> Iterator[JobFile]:
        """The file that a link leads to, or why there is none; nothing for a link that was sent."""
        try:
            text = os.readlink(name, dir_fd=level.folder)
        except OSError:  # it is gone, or a link no more
            return
        path = level.prefix + name
        if self._sent.has_link(path, text):
            return
        found = self._links.resolve(level.prefix, text)
        if isinstance(found, LinkedFile):
            yield self._file(path, found.status, text, found.path)
        else:
            yield JobFile(path, 0, obstacle=found, link=text)

    def read(self, file: JobFile) -> Iterator[bytes]:
        """The file's bytes; it may be another file by now, so its type and owner are looked at
        again.
        """
        *folders, name = (file.source or file.path).split(b"/")
        with self._open_below(folders) as folder:
            descriptor = None if folder is None else _open_file(folder, name, self._owner)
        if descriptor is None:
            return
        try:
            position = 0
            # Read no further than the listed size: a file that keeps growing would never end.
            while chunk := os.pread(descriptor, min(_CHUNK, file.size - position), position):
                position += len(chunk)
                yield chunk
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _open_below(self, parts: Sequence[bytes]) -> Iterator[int | None]:
        """The folder at ``parts``, open meanwhile; ``None`` if it is gone, closed, or no folder
        any more.
        """
        folder: int | None = os.dup(self._top)
        try:
            for part in parts:
                if folder is None:
                    break
                upper, below = folder, _open_folder(folder, part)
                folder = below if isinstance(below, int) else None
                os.close(upper)
            yield folder
        finally:
            if folder is not None:
                os.close(folder)


class _Level:
    """A folder of the walk, open, with those of its folders that were not walked yet."""

    def __init__(self, folder: int, prefix: bytes) -> None:
        self.folder = folder
        self.prefix = prefix
        self.folders: list[bytes] = []
        self._read = bool(prefix) and _is_environment(folder)

    def entries(self) -> Iterator[tuple[bytes, os.stat_result | None]]:
        """What is in the folder itself but its folders, the first time."""
        if self._read:
            return
        self._read = True
        for name, status in _entries(self.folder):
            if status is not None and stat.S_ISDIR(status.st_mode):
                self.folders.append(name)
            else:
                yield name, status

    def close(self) -> None:
        os.close(self.folder)


@contextlib.contextmanager
def open_working_directory(job: Path, owner: int) -> Iterator[WorkingDirectory | None]:
    """The working directory of the job with the folder ``job``; ``None`` if it has none.

    The folder and the folder ``work`` in it belong to the engine. The working directory itself is
    the job's to replace.
    """
    try:
        sent = working_directory.read_manifest(job)
    # The manifest is damaged, for example by a power failure. Treat all files as the job's.
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ):
        sent = Manifest()
    path = os.fsencode(job / "work" / working_directory.CODE)
    top = None if sent is None else _open_folder(None, path)
    if sent is None or not isinstance(top, int):
        yield None if top is None else _Closed()
        return
    try:
        yield LocalWorkingDirectory(
            top, owner, sent, (path, f"{HOME}/{working_directory.CODE}".encode())
        )
    finally:
        os.close(top)


class _Closed:
    """A working directory whose job has closed it to the server."""

    def files(self, enters: Callable[[bytes], bool]) -> Iterator[JobFile]:
        """The directory itself."""
        del enters
        yield JobFile(b".", 0, obstacle=Obstacle.FOLDER_CLOSED)

    def read(self, file: JobFile) -> Iterator[bytes]:
        """Nothing."""
        del file
        yield from ()


def _entries(folder: int) -> Iterator[tuple[bytes, os.stat_result | None]]:
    """Names and their own status, never that of what a link leads to; ``None`` if the server may
    not see it.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            try:
                status = entry.stat(follow_symlinks=False)
            except PermissionError:
                yield name, None
            except OSError:  # it is gone
                continue
            else:
                yield name, status


def _is_environment(folder: int) -> bool:
    for mark in ENVIRONMENT_MARKS:
        with contextlib.suppress(OSError):
            os.stat(mark, dir_fd=folder, follow_symlinks=False)
            return True
    return False


def _open_folder(folder: int | None, name: bytes) -> int | Obstacle | None:
    """The folder; ``None`` if there is none."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except PermissionError:
        return Obstacle.FOLDER_CLOSED
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise


def _open_file(folder: int, name: bytes, owner: int) -> int | None:
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid == owner:
        return descriptor
    os.close(descriptor)
    return None
