"""Which files that a job left in its working directory become its outputs. Pure.

An output is a new or changed file that can be named by a key. A job keeps the smallest first, so
that one huge file never costs all the others their place.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from cloud_ml.models.paths.escaping import escape_path
from cloud_ml.models.paths.ignoring import IGNORE_FILE, IgnoreRules

FOLDER = ".outputs"
"""Where the outputs of all jobs lie in the default bucket of their organisation."""
SKIPPED_FOLDERS = frozenset(
    name.encode()
    for name in (
        "__pycache__",
        ".git",
        ".hg",
        ".svn",
        ".venv",
        ".tox",
        ".nox",
        ".cache",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        "node_modules",
    )
)
"""Folders whose content is never an output: history, caches, environments."""
_NAMED = 5
_REMEMBERED_FOLDERS = 256


class Obstacle(Enum):
    """Why something in a working directory cannot become an output, whatever its name and size."""

    FOREIGN = "another user owns it"
    LINK_OUTSIDE = "a link that leads out of the working directory"
    LINK_BROKEN = "a link that leads to no file"
    LINK_TO_FOLDER = "a link to a folder; the files in the folder have names of their own"
    LINK_BEYOND = "a link, after more links than are followed for one job"
    FOLDER_CLOSED = "a folder that the server may not read"
    FOLDER_TOO_DEEP = "a folder in more nested folders than are walked"

    @property
    def of_folder(self) -> bool:
        """Whether any number of files may lie behind it."""
        return self in (Obstacle.FOLDER_CLOSED, Obstacle.FOLDER_TOO_DEEP)


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file in the working directory of a job that has ended.

    ``path`` is relative and in bytes: a job may use any name. ``size`` is in bytes. A link to a
    file becomes a copy of that file: ``link`` is its text, and ``source`` the path of the file.
    What has an ``obstacle`` is never read.
    """

    path: bytes
    size: int
    modified_ns: int = 0
    obstacle: Obstacle | None = None
    link: bytes = b""
    source: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredOutputs:
    """The outputs of a job, as its status holds them. ``uri`` is their folder; ``not_kept`` counts
    files beside them.

    ``files`` and ``bytes`` are what was stored when the job ended.
    """

    uri: str
    files: int = 0
    bytes: int = 0
    not_kept: int = 0


@dataclass(frozen=True)
class OutputLimits:
    """The most that one job may keep; ``None`` is no limit."""

    bytes: int | None = None
    files: int | None = None


@dataclass
class OmittedFiles:
    """Files that are not kept for one reason: how many, and the largest of them."""

    files: int = 0
    largest: list[tuple[int, bytes]] = field(default_factory=list)

    def add(self, file: JobFile) -> None:
        """Count a file."""
        self.files += 1
        add = heapq.heappush if len(self.largest) < _NAMED else heapq.heappushpop
        name = file.path + b" -> " + file.link if file.link else file.path
        add(self.largest, (file.size, name))

    def names(self) -> Sequence[tuple[int, str]]:
        """Size and readable name of the largest, largest first."""
        return [(size, escape_path(path)) for size, path in sorted(self.largest, reverse=True)]


class OutputSelection:
    """What is kept of a job's files, gathered one by one. Holds at most as many as may be kept."""

    def __init__(self, bounds: OutputLimits) -> None:
        self._bounds = bounds
        self._files: list[
            tuple[int, int, bytes, bytes]
        ] = []  # a heap: the largest first, the oldest of equals first
        self._bytes = 0
        self.beyond = OmittedFiles()

    def add(self, file: JobFile) -> None:
        """Take a file, and leave out the largest while there are too many."""
        heapq.heappush(self._files, (-file.size, file.modified_ns, file.path, file.source))
        self._bytes += file.size
        while self._too_much():
            size, modified_ns, path, _ = heapq.heappop(self._files)
            self._bytes += size
            self.beyond.add(JobFile(path, -size, modified_ns))

    def files(self) -> Iterator[JobFile]:
        """What is kept, the smallest first, of equals the newest."""
        for size, modified_ns, path, source in sorted(self._files, reverse=True):
            yield JobFile(path, -size, modified_ns, source=source)

    def _too_much(self) -> bool:
        too_large = self._bounds.bytes is not None and self._bytes > self._bounds.bytes
        return too_large or (
            self._bounds.files is not None and len(self._files) > self._bounds.files
        )


class OutputFilter:
    """Which paths become outputs. Folders above a file are compared once for all files that follow
    each other.

    Args:
        patterns: What the user asked for with ``--outputs``; ``None`` for everything that is not
            ignored.
        ignored: The lines of the folder's ignore file. Patterns that the user asked for win over
            it.
        checkpoint: Called before each comparison that may take a millisecond.
    """

    def __init__(
        self,
        patterns: Sequence[str] | None,
        ignored: Sequence[str] = (),
        *,
        checkpoint: Callable[[], None] | None = None,
    ) -> None:
        self._chosen = patterns is not None
        self._rules = IgnoreRules(ignored if patterns is None else patterns, checkpoint)
        self._folders: dict[str, bool] = {}

    def keeps(self, path: str) -> bool:
        """Whether the file at ``path`` is an output."""
        if path == IGNORE_FILE and not self._chosen:
            return False
        return self._chosen == (
            self._fits(path.rpartition("/")[0]) or self._rules.ignores(path, folder=False)
        )

    def may_keep_below(self, folder: str) -> bool:
        """Whether files in the folder may be outputs."""
        return self._chosen or self.keeps(f"{folder}/?")

    def enters(self, folder: str) -> bool:
        """Whether a file below ``folder`` may be an output."""
        return self._chosen or not self._fits(folder)

    def _fits(self, folder: str) -> bool:
        """Whether the folder, or one that it is in, fits the patterns."""
        if not folder:
            return False
        found = self._folders.get(folder)
        if found is None:
            found = self._fits(folder.rpartition("/")[0]) or self._rules.ignores(
                folder, folder=True
            )
            if len(self._folders) >= _REMEMBERED_FOLDERS:
                self._folders.clear()
            self._folders[folder] = found
        return found


def folder_of(job_name: str, uid: str) -> str:
    """The key prefix of a job's outputs, with a '/' at its end. No two jobs share one."""
    return f"{FOLDER}/{job_name}-{uid}/"
