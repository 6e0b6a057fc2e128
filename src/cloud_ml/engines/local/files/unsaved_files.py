"""Finds the files that a job wrote outside its working directory, before their folders are removed.

The look is bounded. Every name is opened below the descriptor of its folder, and no link is
followed, because the folders belong to the job. Caches, temporary files and empty files are left
out: nobody misses them.
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from cloud_ml.domain.observed import UnsavedFiles
from cloud_ml.models.paths.escaping import escape_path

MAX_ENTRIES = 500
"""Files and folders that are looked at for one attempt."""
MAX_NAMES = 3
_EVENT_FILE = b".tfevents."
_MAX_DEPTH = 16
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CACHES = re.compile(
    rb"""
    \..* | __pycache__ | .*\.pyc | .*\.lock | .*\.sock | .*\.pid
    | tmp[a-z0-9_]{8}(\..*)?                          # what Python's tempfile names so
    | (pip|uv|build|npm|matplotlib|pymp|joblib_memmapping_folder|torchinductor|torchelastic|hsperfdata|ray|yarn|v8)
      ([-_].*)?
    | scikit_learn_data | nltk_data | tensorflow_datasets | tfhub_modules
    """,
    re.VERBOSE | re.DOTALL,
)
"""Names that programs give to what they can make or fetch again."""


def find_unsaved_files(
    folders: Sequence[tuple[Path, str]], *, skipped: frozenset[bytes] = frozenset()
) -> UnsavedFiles:
    """Count the files in ``folders`` and name the largest.

    Args:
        folders: Each folder of this machine with its name for the job, such as ``~``.
        skipped: Names at the top of the folders that are left out.
    """
    search = _Search()
    for folder, shown in folders:
        search.look_into(folder, os.fsencode(shown), skipped)
    return search.found()


class _Search:
    def __init__(self) -> None:
        self._entries = 0
        self._files = 0
        self._largest: list[tuple[int, bytes]] = []
        self._event_files = b""

    def found(self) -> UnsavedFiles:
        names = tuple(escape_path(path) for _, path in sorted(self._largest, reverse=True))
        return UnsavedFiles(
            self._files,
            names,
            complete=self._entries <= MAX_ENTRIES,
            event_files=escape_path(self._event_files),
        )

    def look_into(self, folder: Path, shown: bytes, skipped: frozenset[bytes]) -> None:
        """Look at the folder level by level, so that what lies at the top is never beyond the
        bound.
        """
        try:
            top = os.open(folder, _FOLDER)
        except OSError:
            return
        try:
            waiting = deque([b""])
            while waiting and self._entries <= MAX_ENTRIES:
                below = waiting.popleft()
                folders = self._look_at(top, below, shown, frozenset() if below else skipped)
                if below.count(b"/") < _MAX_DEPTH:
                    waiting += folders
        finally:
            os.close(top)

    def _look_at(
        self, top: int, below: bytes, shown: bytes, skipped: frozenset[bytes]
    ) -> list[bytes]:
        """Count the files of one folder; returns the folders in it. One that has gone or is
        closed has none.
        """
        folders: list[bytes] = []
        try:
            descriptor = _open_below(top, below)
        except OSError:
            return folders
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if name in skipped:
                        continue
                    self._entries += 1
                    if self._entries > MAX_ENTRIES:
                        break
                    if _CACHES.fullmatch(name):
                        continue
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        folders.append(below + name + b"/")
                    elif stat.S_ISREG(status.st_mode) and status.st_size:
                        self._add(status.st_size, shown + b"/" + below + name)
        except OSError:
            pass  # it changes meanwhile; this is a hint and no inventory
        finally:
            os.close(descriptor)
        return folders

    def _add(self, size: int, path: bytes) -> None:
        self._files += 1
        folder, _, name = path.rpartition(b"/")
        if not self._event_files and _EVENT_FILE in name:
            self._event_files = folder
        add = heapq.heappush if len(self._largest) < MAX_NAMES else heapq.heappushpop
        add(self._largest, (size, path))


def _open_below(top: int, path: bytes) -> int:
    """Open the folder at ``path``, which is empty or ends in a slash, without following any
    link.
    """
    descriptor = os.dup(top)
    for part in path.split(b"/")[:-1]:
        try:
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor
