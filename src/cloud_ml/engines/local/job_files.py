"""The files that a job left, read by the server while the job's user may still do anything to them.

Every name is opened below the descriptor of its folder and without following links. A pipe, a socket or a device is
skipped by its type and never opened for long. Depth is kept on a list and not on the stack.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from cloud_ml.domain.jobs.outputs import ENVIRONMENT_MARKS, JobFile
from cloud_ml.engines.local import working_directory

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that a job has put in the place of a file would wait for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG,
})  # fmt: skip
_CHUNK = 1 << 18
_DEEPEST = working_directory.MAX_DEPTH
"""Folders inside each other. Each is open while those below it are walked."""

Sent = Mapping[bytes, tuple[int, int]]
"""Size and time of change (ns) of each file that was sent, by its path."""


class LocalWorkingDirectory:
    """See ``engines.base.WorkingDirectory``.

    Args:
        top: Descriptor of the directory.
        owner: The user whose files these are.
        sent: What was in the directory before the job began.
    """

    def __init__(self, top: int, owner: int, sent: Sent) -> None:
        self._top = top
        self._owner = owner
        self._sent = sent

    def files(self, enters: Callable[[bytes], bool]) -> Iterator[JobFile]:
        """New and changed files, one folder after the other; of folders that are too deep, their own names."""
        levels = [_Level(os.dup(self._top), b"")]
        try:
            while levels:
                level = levels[-1]
                yield from level.files(self._owner, self._sent)
                if not level.folders:
                    level.close()
                    levels.pop()
                    continue
                name = level.folders.pop()
                if not enters(name):
                    continue
                if len(levels) > _DEEPEST:
                    yield JobFile(level.prefix + name + b"/", 0)
                elif (folder := _open_folder(level.folder, name)) is not None:
                    levels.append(_Level(folder, level.prefix + name + b"/"))
        finally:
            for level in levels:
                level.close()

    def read(self, file: JobFile) -> Iterator[bytes]:
        """The file's bytes; it may be another file by now, so its type and owner are looked at again."""
        *folders, name = file.path.split(b"/")
        with self._opened(folders) as folder:
            descriptor = None if folder is None else _open_file(folder, name, self._owner)
        if descriptor is None:
            return
        try:
            position = 0
            while chunk := os.pread(descriptor, min(_CHUNK, file.size - position), position):
                position += len(chunk)
                yield chunk
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _opened(self, parts: Sequence[bytes]) -> Iterator[int | None]:
        """The folder at ``parts``, open meanwhile; ``None`` if it is gone, closed, or no folder any more."""
        folder: int | None = os.dup(self._top)
        try:
            for part in parts:
                if folder is None:
                    break
                upper, folder = folder, _open_folder(folder, part)
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

    def files(self, owner: int, sent: Sent) -> Iterator[JobFile]:
        """The files in the folder itself, the first time."""
        if self._read:
            return
        self._read = True
        for name, status in _entries(self.folder):
            path = self.prefix + name
            if stat.S_ISDIR(status.st_mode):
                self.folders.append(name)
            elif stat.S_ISREG(status.st_mode) and sent.get(path) != (status.st_size, status.st_mtime_ns):
                yield JobFile(path, status.st_size, status.st_mtime_ns, foreign=status.st_uid != owner)

    def close(self) -> None:
        os.close(self.folder)


@contextlib.contextmanager
def opened(job: Path, owner: int) -> Iterator[LocalWorkingDirectory | None]:
    """The working directory of the job with the folder ``job``; ``None`` if it has none.

    The folder and the folder ``work`` in it belong to the engine. The working directory itself is the job's to replace.
    """
    try:
        sent = working_directory.read_manifest(job)
    except (ValueError, LookupError, TypeError, AttributeError):  # a power cut has torn it: what is there is kept
        sent = {}
    top = None if sent is None else _open_folder(None, os.fsencode(job / "work" / working_directory.CODE))
    if sent is None or top is None:
        yield None
        return
    try:
        files = {os.fsencode(path): (file.size, file.mtime_ns) for path, file in sent.items()}
        yield LocalWorkingDirectory(top, owner, files)
    finally:
        os.close(top)


def _entries(folder: int) -> Iterator[tuple[bytes, os.stat_result]]:
    """Names and their own status, never that of what a link leads to."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                yield os.fsencode(entry.name), entry.stat(follow_symlinks=False)


def _is_environment(folder: int) -> bool:
    for mark in ENVIRONMENT_MARKS:
        with contextlib.suppress(OSError):
            os.stat(mark, dir_fd=folder, follow_symlinks=False)
            return True
    return False


def _open_folder(folder: int | None, name: bytes) -> int | None:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
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
