"""The working directory of a job: a private, writable copy of the files that were sent.

::

    <root>/jobs/<job>/work        the home directory of the job; its code may write here, too
    <root>/jobs/<job>/work/code   the working directory, ``/work/code`` for the job
    <root>/jobs/<job>/sent.json   the manifest: the files that were copied, as they were copied

The copy is made once for each job, before any of its code runs, and is kept over its attempts. It
has no link to a file outside of it. The manifest is written last and lies where the job cannot
write, so that a file that is not in it, or differs from it, was made or changed by the job.

The job may do anything to its folders between two attempts. So every path here is walked by
descriptor, and no link is followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local import small_files
from cloud_ml.engines.local.disk import project_quotas
from cloud_ml.environments.removing import remove
from cloud_ml.models.common import format_memory

CODE = "code"
"""The name of the working directory in the home directory."""
MANIFEST = "sent.json"
MAX_DEPTH = 64
"""Folders inside each other; an archive may not have more."""
_FORMAT = 1
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SOURCE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TARGET = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FICLONE = 0x40049409
_CHUNK = 1 << 24


class CannotCopy(Exception):
    """The files that were sent cannot be copied for the job; the message says why."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class SentFile:
    """A file of the manifest: its size in bytes and its modification time."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Manifest:
    """What was sent, by path: files, and the text of each symbolic link."""

    files: Mapping[str, SentFile] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CopyLimits:
    """What a copy may take: bytes and files. ``None`` is no limit."""

    size: int | None = None
    files: int | None = None


def make_once(
    source: Path | None, job: Path, *, user: tuple[int, int] | None, room: CopyLimits
) -> None:
    """Make the working directory of the job with the folder ``job``, unless it is there.

    Args:
        source: The files that were sent; without one the working directory is empty.
        job: The folder of the job, which has the folder ``work`` already.
        user: The (uid, gid) that the copy belongs to; ``None`` for this process's.
        room: What the copy may take.

    Raises:
        CannotCopy: It takes more, or is deeper than ``MAX_DEPTH``.
        OSError: It cannot be read or written.
    """
    # The draft is not below ``work``, where the job could reach it.
    target, draft = job / "work" / CODE, job / f".{CODE}"
    if (job / MANIFEST).exists() and _is_folder(target):
        return
    remove(draft)  # a supervisor that was killed has left it
    copy = _Copy(user, room)
    try:
        copy.make_folder(draft)
        project_quotas.share_project(job / "work", draft)  # or it could not be renamed into it
        if source is not None:
            copy.fill(source, draft)
        # Remove a copy without its manifest, or anything that the job has put there.
        remove(target)
        draft.rename(target)
    except BaseException:
        remove(draft)
        raise
    _write_manifest(job / MANIFEST, Manifest(copy.sent, copy.links))


def read_manifest(job: Path) -> Manifest | None:
    """What was sent; ``None`` if no working directory was made for the job."""
    try:
        document = json.loads((job / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None
    files = {path: SentFile(*facts) for path, facts in document["files"].items()}
    return Manifest(files, dict(document.get("links", {})))


class _Copy:
    """Copies a tree, and remembers each file of it."""

    def __init__(self, user: tuple[int, int] | None, room: CopyLimits) -> None:
        self.sent: dict[str, SentFile] = {}
        self.links: dict[str, str] = {}
        self._user = user
        self._room = room
        self._size = 0
        self._entries = 0
        self._can_clone = True

    def make_folder(self, path: Path | str, parent: int | None = None) -> None:
        os.mkdir(path, 0o755, dir_fd=parent)
        self._own(path, parent)

    def fill(self, source: Path, target: Path) -> None:
        with _open_folder(source) as original, _open_folder(target) as copy:
            self._copy_entries(original, copy, "", 0)

    def _copy_entries(self, source: int, target: int, below: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise CannotCopy(
                Reason.TRAINER_INVALID,
                f"the files that were sent lie in more than {MAX_DEPTH} nested folders",
            )
        with os.scandir(source) as entries:
            for entry in entries:
                if entry.is_symlink():
                    text = self.links[below + entry.name] = os.readlink(entry.name, dir_fd=source)
                    os.symlink(text, entry.name, dir_fd=target)
                    self._own(entry.name, target)
                elif entry.is_dir(follow_symlinks=False):
                    self.make_folder(entry.name, target)
                    with (
                        _open_folder(entry.name, source) as inner,
                        _open_folder(entry.name, target) as copy,
                    ):
                        self._copy_entries(inner, copy, f"{below}{entry.name}/", depth + 1)
                elif entry.is_file(follow_symlinks=False):
                    self._copy_file(entry.name, source, target, below)
                self._check_entries()

    def _copy_file(self, name: str, source: int, target: int, below: str) -> None:
        original = os.open(name, _SOURCE, dir_fd=source)
        try:
            facts = os.fstat(original)
            if not stat.S_ISREG(facts.st_mode):
                return
            self._reserve(facts.st_size)
            mode = (facts.st_mode & 0o777) | 0o600
            copy = os.open(name, _TARGET, mode, dir_fd=target)
            try:
                self._copy_content(original, copy, facts.st_size)
                if self._user is not None:
                    os.fchown(copy, *self._user)
                os.utime(copy, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
                made = os.fstat(copy)
                if made.st_mode & 0o777 != mode:  # this process's umask has taken bits away
                    os.fchmod(copy, mode)
                # The time as it was stored: some file systems round it.
                self.sent[below + name] = SentFile(facts.st_size, made.st_mtime_ns)
            finally:
                os.close(copy)
        finally:
            os.close(original)

    def _check_entries(self) -> None:
        self._entries += 1
        if self._room.files is not None and self._entries > self._room.files:
            raise CannotCopy(
                Reason.DISK_QUOTA,
                f"DiskQuotaExceeded: more than {self._room.files} files and folders were sent",
            )

    def _reserve(self, size: int) -> None:
        self._size += size
        if self._room.size is not None and self._size > self._room.size:
            raise CannotCopy(
                Reason.DISK_QUOTA,
                "DiskQuotaExceeded: a job gets a copy of the files that were sent, and they take "
                f"more than the {format_memory(self._room.size)} that are left for it",
            )

    def _copy_content(self, source: int, target: int, size: int) -> None:
        """Share the blocks until one of both is written to, where the file system can do that."""
        if self._can_clone and size:
            try:
                fcntl.ioctl(target, _FICLONE, source)
            except OSError:
                self._can_clone = False
            else:
                return
        left = size
        while left > 0:
            done = os.sendfile(target, source, None, min(left, _CHUNK))
            if not done:
                raise OSError("a file that was sent became shorter while it was copied")
            left -= done

    def _own(self, path: Path | str, parent: int | None) -> None:
        if self._user is not None:
            os.chown(path, *self._user, dir_fd=parent, follow_symlinks=False)


def _write_manifest(file: Path, sent: Manifest) -> None:
    files = {path: [one.size, one.mtime_ns] for path, one in sent.files.items()}
    document = {"format": _FORMAT, "files": files, "links": sent.links}
    draft = file.with_name(f".{file.name}")
    small_files.write(draft, json.dumps(document, separators=(",", ":")).encode())
    draft.replace(file)


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _open_folder(path: Path | str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _FOLDER, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
