"""Folders that a job left as they were, kept for the next one of its tenant that needs the same.

Making a virtual environment and removing it again is twenty changes of a file system, most of what
a short job costs there; even an empty folder is three, and where a file system looks at each name
that went lately before it gives one away, they are the dearest. What is kept is taken and given
back by renaming, so nobody ever has it together with somebody else.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cloud_ml.environments.removing import remove

_SHELVES, _PER_SHELF = 32, 4
_LONGEST = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that a job has planted would wait for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_numbers = itertools.count()

_Facts = Mapping[str, tuple[object, ...]]
_MOST_REMEMBERED = 64
_given_back: dict[str, _Facts] = {}
"""What this process has given back, by the name on the shelf: what was found in it then. Jobs do not
reach a shelf, so nothing of it is looked at again when this process takes it.
"""


class Kept:
    """One folder of one job, from the tenant's shelves or new.

    Args:
        folder: The tenant's shelves, on the file system of the jobs' folders; out of reach of jobs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shelf: Path | None = None
        self._facts: _Facts = {}

    def take(self, shelf: str, target: Path, fresh: Callable[[Path], None]) -> None:
        """Have ``target`` become one from ``shelf``, or a ``fresh`` one if there is none."""
        self._shelf = self._folder / shelf
        name = self._take_folder(self._shelf, target)
        if not name:
            fresh(target)
        self._facts = _recall(name, target) or dict(_look(target))

    def give_back(self, target: Path) -> None:
        """Keep ``target`` if no process of the job, which are all gone, has changed anything in
        it; else remove it.
        """
        with contextlib.suppress(OSError):
            if (
                self._shelf is not None
                and _is_unchanged(target, self._facts)
                and self._room_on(self._shelf)
            ):
                name = _name()
                target.rename(self._shelf / name)
                _remember(name, self._facts)
                return
        remove(target)

    def _take_folder(self, shelf: Path, target: Path) -> str:
        """The name on the shelf of what was taken; empty if there is none. What this process has
        given back comes first.
        """
        try:
            kept = os.listdir(shelf)  # noqa: PTH208
        except OSError:
            return ""
        for name in sorted(kept, key=lambda one: one not in _given_back):
            with contextlib.suppress(OSError):  # another job was quicker
                (shelf / name).rename(target)
                return name
        return ""

    def _room_on(self, shelf: Path) -> bool:
        try:
            return len(os.listdir(shelf)) < _PER_SHELF  # noqa: PTH208
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            others = [one for one in self._folder.iterdir() if not one.name.startswith(".")]
            if len(others) >= _SHELVES:
                _discard(min(others, key=lambda one: one.stat().st_mtime))
            shelf.mkdir(exist_ok=True, mode=0o700)
            return True


def clear(folder: Path) -> None:
    """Remove all that is kept, whatever is taken or given back meanwhile."""
    for shelf in folder.glob("*/*"):
        _discard(shelf)


def _discard(shelf: Path) -> None:
    """Out of everybody's sight first: what is half removed must not be taken."""
    aside = shelf if shelf.name.startswith(".") else shelf.with_name(f".{_name()}")
    with contextlib.suppress(OSError):
        if aside != shelf:
            shelf.rename(aside)
        remove(aside)


def _name() -> str:
    return f"{os.getpid()}-{os.times().elapsed:.2f}-{next(_numbers)}"


def _remember(name: str, facts: _Facts) -> None:
    while len(_given_back) >= _MOST_REMEMBERED:  # others have taken those
        del _given_back[next(iter(_given_back))]
    _given_back[name] = facts


def _recall(name: str, folder: Path) -> _Facts | None:
    """What is in a folder that this process has given back; ``None`` for any other.

    To be renamed is a change of the folder itself, and of nothing in it.
    """
    facts = _given_back.pop(name, None)
    if facts is None:
        return None
    *now, changed_at = _facts(os.lstat(folder))
    *before, _, content = facts[""]
    return {**facts, "": (*now, changed_at, content)} if now == before else None


def _look(folder: Path) -> Iterator[tuple[str, tuple[object, ...]]]:
    """All that can differ in ``folder``, and when it last did, which no user can set; a folder
    before what is in it.

    Times alone would do if they were not as coarse as the ticks of a clock. Every name is looked up
    in an open folder and no link is followed: what a job has left must not lead this process
    elsewhere.

    Raises:
        OSError: Something turned into something else meanwhile.
    """
    top = os.open(folder, _FOLDER)
    try:
        yield "", (*_facts(os.fstat(top)), b"")
        waiting = [""]
        while waiting:
            above = waiting.pop()
            descriptor = _open_below(top, above) if above else top
            try:
                for name in os.listdir(descriptor):  # noqa: PTH208 - an open folder has no path
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    yield above + name, (*_facts(status), _content(descriptor, name, status))
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(f"{above}{name}/")
            finally:
                if descriptor != top:
                    os.close(descriptor)
    finally:
        os.close(top)


def _facts(status: os.stat_result) -> tuple[object, ...]:
    return status.st_ino, status.st_mode, status.st_uid, status.st_nlink, status.st_ctime_ns


def _content(folder: int, name: str, status: os.stat_result) -> bytes | str:
    """Where a link leads, or what a plain file of bearable size says."""
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(name, dir_fd=folder)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LONGEST:
        return b""
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        return os.read(descriptor, status.st_size + 1)
    finally:
        os.close(descriptor)


def _open_below(top: int, path: str) -> int:
    """The folder at ``path``, which ends in a slash, below an open one."""
    descriptor = top
    for part in path[:-1].split("/"):
        try:
            below = os.open(part, _FOLDER, dir_fd=descriptor)
        finally:
            if descriptor != top:
                os.close(descriptor)
        descriptor = below
    return descriptor


def _is_unchanged(folder: Path, before: _Facts) -> bool:
    """Looks no further than the first difference: a job may have installed much."""
    count = 0
    for path, facts in _look(folder):
        if before.get(path) != facts:
            return False
        count += 1
    return count == len(before)
