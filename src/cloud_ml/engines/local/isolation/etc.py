"""The ``/etc`` that jobs see: copies of the machine's harmless files, in one folder.

One folder costs a sandbox one mount; a mount for each of twenty files costs a third of its start.
Copies are compared with the machine's files (what they are and when they changed, not their
content) before each start and now and then, so a job that runs sees a new ``resolv.conf`` too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

USER_ID, HOME = 1000, "/work"
"""The user inside the sandbox, whoever it is outside."""
_COPIED = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "fonts",
    "gai.conf",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "protocols",
    "resolv.conf",
    "services",
    "timezone",
)
MOUNTED = ("pki", "ssl")
"""Folders that are many, or hold what not everybody may read: the sandbox mounts the machine's
own.
"""
HARMLESS = (*_COPIED, *MOUNTED, "passwd", "group")
"""Names in ``/etc`` that programs expect and anybody may read."""
_MOST_BYTES = 16 * 1024 * 1024
_READABLE = 0o004

_Mark = tuple[int, int, int, int]


class Etc:
    """Keeps a folder like the machine's ``/etc``, as far as that is for everybody's eyes.

    Args:
        folder: Where the copies are; made if absent.
        source: The machine's.
        leave: Names that somebody else looks after.
    """

    def __init__(
        self, folder: Path, source: Path = Path("/etc"), leave: Sequence[str] = ()
    ) -> None:
        self._folder = str(folder)
        self._source = str(source)
        self._leave = leave
        self._marks: dict[str, _Mark | None] = {}
        self._inside: dict[str, list[str]] = {}

    def create(self) -> None:
        """Make the folder, with the users of a sandbox."""
        folder = Path(self._folder)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        for name in MOUNTED:
            if Path(self._source, name).is_dir():
                (folder / name).mkdir(exist_ok=True)
        nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        users = f"root:x:0:0:root:/root:/usr/sbin/nologin\njob:x:{USER_ID}:{USER_ID}:job:{HOME}:/bin/sh\n{nobody}"
        self._write("passwd", users.encode())
        self._write("group", f"root:x:0:\njob:x:{USER_ID}:\nnogroup:x:65534:\n".encode())
        self.refresh()

    def refresh(self) -> None:
        """Copy what has changed since the last time. A file that cannot be copied is left as it
        was.
        """
        for name in _COPIED:
            if name not in self._leave:
                self._renew(name)

    def _renew(self, name: str) -> None:
        path = f"{self._source}/{name}"
        try:
            facts = os.stat(path)  # noqa: PTH116 - many at each start
        except OSError:
            facts = None
        if facts is not None and not (facts.st_mode & _READABLE):
            facts = None
        mark = (
            None
            if facts is None
            else (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        )
        if name not in self._marks or self._marks[name] != mark:
            with contextlib.suppress(OSError):
                self._copy(name, path, facts)
                # Set the mark after the copy, so that a failed copy is retried.
                self._marks[name] = mark
        for child in self._inside.get(name, ()):
            self._renew(child)

    def _copy(self, name: str, path: str, facts: os.stat_result | None) -> None:
        self._inside.pop(name, None)
        if facts is not None and stat.S_ISDIR(facts.st_mode):
            self._copy_names(name, path)
        elif facts is not None and stat.S_ISREG(facts.st_mode) and facts.st_size <= _MOST_BYTES:
            self._write(name, Path(path).read_bytes())
        else:
            _remove(f"{self._folder}/{name}")

    def _copy_names(self, name: str, path: str) -> None:
        """What is in a folder: links as they are, which changes with the folder itself; the rest
        by ``_renew``.
        """
        target = f"{self._folder}/{name}"
        if not os.path.isdir(target) or os.path.islink(target):  # noqa: PTH112, PTH114
            _remove(target)
            Path(target).mkdir(mode=0o755)
        with os.scandir(path) as found:
            entries = {entry.name: entry for entry in found}
        for old in os.listdir(target):  # noqa: PTH208
            if old not in entries:
                _remove(f"{target}/{old}")
        inside = []
        for entry in entries.values():
            if entry.is_symlink():
                self._link(f"{name}/{entry.name}", os.readlink(entry.path))  # noqa: PTH115
            else:
                inside.append(f"{name}/{entry.name}")
                self._marks.pop(inside[-1], None)
        self._inside[name] = inside

    def _write(self, name: str, content: bytes) -> None:
        """Write the file, unless it is there: a server starts on a full disk, too."""
        if _holds(Path(self._folder, name), content):
            return
        draft = Path(f"{self._folder}.{os.getpid()}.draft")
        try:
            draft.write_bytes(content)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        draft.chmod(0o644)
        self._put(draft, name)

    def _link(self, name: str, to: str) -> None:
        draft = Path(f"{self._folder}.{os.getpid()}.draft")
        draft.unlink(missing_ok=True)
        draft.symlink_to(to)
        self._put(draft, name)

    def _put(self, draft: Path, name: str) -> None:
        """Under its name in one step: a job may be reading the file that was there."""
        target = Path(self._folder, name)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        draft.replace(target)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            shutil.rmtree(path)
        else:
            os.unlink(path)  # noqa: PTH108


def _holds(path: Path, content: bytes) -> bool:
    """Whether there is a file with this content that everybody may read."""
    with contextlib.suppress(OSError):
        facts = path.lstat()
        readable = stat.S_ISREG(facts.st_mode) and stat.S_IMODE(facts.st_mode) == 0o644
        return readable and facts.st_size == len(content) and path.read_bytes() == content
    return False
