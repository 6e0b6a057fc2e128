"""One folder of links, so that TensorBoard shows runs of several folders under names."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 5.0
"""How often new trials of a study are looked for: as often as TensorBoard looks for new runs."""
_MOST = 10_000
"""Links of one folder."""


@dataclass(frozen=True)
class RunFolder:
    """A folder and the name of its runs.

    With ``each_child``, each folder in it is a run of its own, and ``name`` is a pattern whose last
    character stands for the name of that folder.
    """

    name: str
    path: Path
    each_child: bool = False


class RunFolders:
    """Keeps the links.

    Args:
        root: The folder of the links. It is made anew.
        folders: What they lead to.
    """

    def __init__(self, root: Path, folders: Sequence[RunFolder]) -> None:
        self._root = root
        self._folders = folders
        self._made: set[str] = set()

    def make(self) -> None:
        """Make the folder, with a link to everything that there is now."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._root.mkdir(parents=True)
        self._made.clear()
        self.update()

    def update(self) -> None:
        """Link what is new."""
        for name, path in self._list_folders():
            if name not in self._made and len(self._made) < _MOST:
                self._made.add(name)
                # One that is there already, or whose name is too long behind that of the runs.
                with contextlib.suppress(FileExistsError), _without_long_names():
                    (self._root / name).symlink_to(path.absolute())

    def follow(self) -> None:
        """Link what is new from now on, in a thread."""
        if any(folder.each_child for folder in self._folders):
            threading.Thread(
                target=self._update_repeatedly, name="run folders", daemon=True
            ).start()

    def _update_repeatedly(self) -> None:
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            with contextlib.suppress(OSError):  # a full disk; the next look tries again
                self.update()

    def _list_folders(self) -> Iterator[tuple[str, Path]]:
        for folder in self._folders:
            if not folder.each_child:
                yield folder.name, folder.path
                continue
            for child in _folders_in(folder.path):
                yield f"{folder.name[:-1]}{child}", folder.path / child


@contextlib.contextmanager
def _without_long_names() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise


def _folders_in(path: Path) -> list[str]:
    """The names of folders in a folder, which may not be there yet. Links are left out."""
    try:
        with os.scandir(path) as entries:
            return [one.name for one in entries if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []
