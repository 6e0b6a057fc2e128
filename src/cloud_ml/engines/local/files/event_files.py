"""Event files of TensorBoard that a job has written, found and opened by a process that may have more
rights than the job.

Every name is opened below the descriptor of its folder, and no link is followed. What is looked at
is bounded: folders inside each other, names, files.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml.engines.abilities import EventFile, EventFiles
from cloud_ml.models.paths.ignoring import ENVIRONMENT_MARKS

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a job may have put a pipe there, and opening it would wait for a writer. O_NOCTTY: a
# terminal must not become this process's controlling terminal.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MARK = "tfevents"
_DEEPEST = 8
_MOST_NAMES = 20_000
_MOST_FILES = 1000
_LONGEST_PATH = 1000
_MOST_RECENT = 8
"""Folders of one job."""


@dataclass(frozen=True)
class Root:
    """A folder that is searched. ``name`` is what paths of its files begin with.

    The parts of ``below`` lead from ``folder``, which the job cannot replace, to where it begins.
    """

    name: str
    folder: Path
    below: Sequence[str] = ()


class _Search:
    """What one search has found, and what it may still look at."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.files: list[EventFile] = []
        self.names = 0
        self.folders: set[tuple[int, int]] = set()
        """Those that were walked: roots may lie in each other."""
        self.incomplete = ""
        self.root = ""
        self.changed: list[tuple[float, str]] = []
        """When each of the folders has changed, and its path."""

    @property
    def over(self) -> bool:
        """Whether it is enough."""
        if self.names >= _MOST_NAMES:
            self.incomplete = f"there are more than {_MOST_NAMES} files and folders"
            return True
        if len(self.files) >= _MOST_FILES:
            self.incomplete = f"there are more than {_MOST_FILES} event files"
            return True
        return False


def find(roots: Sequence[Root], since: float) -> EventFiles:
    """The event files below these folders that were written after ``since`` (seconds since 1970)."""
    found = _Search(since)
    for root in roots:
        with _open_folder(root.folder, root.below) as folder:
            found.names = 0  # a bucket of a million files does not hide the working folder
            if folder is not None and not found.over:
                found.root = f"{root.name}/"
                _walk(folder, root.name, found)
    recent = [path for _, path in heapq.nlargest(_MOST_RECENT, found.changed)]
    return EventFiles(found.files, found.incomplete, recent)


@contextlib.contextmanager
def opened_file(roots: Sequence[Root], path: str) -> Iterator[int | None]:
    """A file that ``find`` has found, open for reading; ``None`` if it is none any more."""
    root = next((one for one in roots if path.startswith(f"{one.name}/")), None)
    if root is None:
        yield None
        return
    *folders, name = path.removeprefix(f"{root.name}/").split("/")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_open_folder(root.folder, [*root.below, *folders]))
        descriptor = None
        if folder is not None and name not in ("", ".", ".."):
            with contextlib.suppress(OSError):
                descriptor = os.open(name, _FILE, dir_fd=folder)
                stack.callback(os.close, descriptor)
        if descriptor is not None and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            descriptor = None
        yield descriptor


@contextlib.contextmanager
def opened_folder(roots: Sequence[Root], path: str) -> Iterator[int | None]:
    """A folder that ``find`` has searched, open; ``None`` if it is gone."""
    root = next((one for one in roots if f"{path}/".startswith(f"{one.name}/")), None)
    if root is None:
        yield None
        return
    parts = path[len(root.name) + 1 :].split("/") if path != root.name else ()
    with _open_folder(root.folder, [*root.below, *parts]) as folder:
        yield folder


@contextlib.contextmanager
def opened_root(root: Root) -> Iterator[int | None]:
    """The folder that is searched, open; ``None`` if there is none."""
    with _open_folder(root.folder, root.below) as folder:
        yield folder


@contextlib.contextmanager
def _open_folder(folder: Path, below: Sequence[str]) -> Iterator[int | None]:
    try:
        found = _open_below(folder, below)
    except (OSError, ValueError):
        yield None
        return
    try:
        yield found
    finally:
        os.close(found)


def _open_below(folder: Path, below: Sequence[str]) -> int:
    """Two folders are open at a time, however many lie in each other: users choose how many."""
    found = os.open(folder, _FOLDER)
    for part in below:
        try:
            if part in ("", ".", ".."):
                raise FileNotFoundError(part)
            inner = os.open(part, _FOLDER, dir_fd=found)
        finally:
            os.close(found)
        found = inner
    return found


def _walk(top: int, name: str, search: _Search) -> None:
    """Look below a folder. At most ``_DEEPEST`` folders are open at a time."""
    levels = [_names(top, name, search)]
    descriptors = [top]
    try:
        while levels:
            step = next(levels[-1], None)
            if step is None or search.over:
                levels.pop()
                descriptor = descriptors.pop()
                if descriptor != top:
                    os.close(descriptor)
                continue
            if len(levels) >= _DEEPEST:
                continue
            folder, path = step
            with contextlib.suppress(OSError):
                descriptor = os.open(folder, _FOLDER, dir_fd=descriptors[-1])
                descriptors.append(descriptor)
                levels.append(_names(descriptor, path, search))
    finally:
        for descriptor in descriptors:
            if descriptor != top:
                os.close(descriptor)


def _names(folder: int, path: str, search: _Search) -> Iterator[tuple[str, str]]:
    """Take the files of a folder, then give its folders: name and path."""
    facts = os.fstat(folder)
    if (facts.st_dev, facts.st_ino) in search.folders:
        return
    search.folders.add((facts.st_dev, facts.st_ino))
    search.changed.append((facts.st_mtime, path))
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            search.names += 1
            if search.over:
                break
            name = entry.name
            if name in ENVIRONMENT_MARKS:  # packages: thousands of files, none of which is ours
                return
            below = f"{path}/{name}"
            if name.startswith((".", "__pycache__")) or not _is_storable(below):
                continue
            if _MARK in name:
                _take(entry, below, search)
            elif entry.is_dir(follow_symlinks=False):
                folders.append((name, below))
    yield from sorted(folders)


def _is_storable(path: str) -> bool:
    return len(path) <= _LONGEST_PATH and path.isprintable()


def _take(entry: os.DirEntry[str], path: str, search: _Search) -> None:
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError:  # it is gone
        return
    if stat.S_ISREG(facts.st_mode) and facts.st_mtime >= search.since:
        identity = f"{facts.st_dev}:{facts.st_ino}"
        search.files.append(
            EventFile(path, path.removeprefix(search.root), identity, facts.st_size)
        )
