"""Where a symbolic link in a working directory leads, found without following one.

The job may change the directory meanwhile. So each name is looked at below the descriptor of its
folder, and who reads the file at the path found here opens it without following links, too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from cloud_ml.domain.workloads.outputs import Obstacle

MOST_LINKS = 10_000
"""So many links of a job are resolved."""
MOST_LOOKS = 1_000_000
"""So many folders and names are looked at for all of them. A link may lead up and down through deep
folders, and each step opens all folders above it: ten thousand such links would take ten minutes.
"""
_MOST_STEPS = 128
"""Names that are looked at for one link, those of the links that it leads to included."""

OpenFolder = Callable[[Sequence[bytes]], AbstractContextManager[int | None]]
"""Opens the folder with these names below the working directory; gives ``None`` if there is
none.
"""


@dataclass(frozen=True)
class LinkedFile:
    """A file of the working directory that a link leads to."""

    path: bytes
    status: os.stat_result


class LinkResolver:
    """Resolves the links of one working directory.

    Args:
        opened: Opens a folder of it.
        roots: The paths under which the job sees it, for links with an absolute path.
    """

    def __init__(self, opened: OpenFolder, roots: Sequence[bytes]) -> None:
        self._opened = opened
        self._roots = roots
        self._resolved = 0
        self._looks = 0

    def resolve(self, folder: bytes, text: bytes) -> LinkedFile | Obstacle:
        """What the link with this text in the folder at this path (``a/b/``) leads to."""
        self._resolved += 1
        if self._resolved > MOST_LINKS or self._looks > MOST_LOOKS:
            return Obstacle.LINK_BEYOND
        at, names = folder.split(b"/")[:-1], [text]
        for _ in range(_MOST_STEPS):
            if not names:
                return Obstacle.LINK_TO_FOLDER
            name = names.pop()
            if b"/" in name:
                at, ahead = self._split(at, name)
                if ahead is None:
                    return Obstacle.LINK_OUTSIDE
                names += reversed(ahead)
            elif name == b"..":
                if not at:
                    return Obstacle.LINK_OUTSIDE
                at.pop()
            elif name not in (b"", b"."):
                found = self._look_at(at, name)
                if isinstance(found, bytes):
                    names.append(found)
                elif isinstance(found, os.stat_result):
                    return (
                        Obstacle.LINK_BROKEN if names else LinkedFile(b"/".join([*at, name]), found)
                    )
                elif found is not None:
                    return found
                else:
                    at.append(name)
        return Obstacle.LINK_BROKEN

    def _split(self, at: list[bytes], text: bytes) -> tuple[list[bytes], list[bytes] | None]:
        """The folder where the text begins, and its names; ``None`` if it begins outside."""
        if not text.startswith(b"/"):
            return at, text.split(b"/")
        for root in self._roots:
            if text == root or text.startswith(root + b"/"):
                return [], text[len(root) :].split(b"/")
        return at, None

    def _look_at(
        self, at: Sequence[bytes], name: bytes
    ) -> bytes | os.stat_result | Obstacle | None:
        """The text of a link, the status of a file, why it is neither; ``None`` for a folder."""
        self._looks += len(at) + 1
        try:
            with self._opened(at) as folder:
                if folder is None:
                    return Obstacle.LINK_BROKEN
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    return os.readlink(name, dir_fd=folder)
        except OSError as error:
            return Obstacle.FOLDER_CLOSED if error.errno == errno.EACCES else Obstacle.LINK_BROKEN
        if stat.S_ISDIR(status.st_mode):
            return None
        return status if stat.S_ISREG(status.st_mode) else Obstacle.LINK_BROKEN
