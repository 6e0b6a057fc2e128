"""Paths that a tenant's user can reach.

As root, jobs run as another user, and bubblewrap opens its sources as that user: below a private
folder (``/root``) they would be out of reach. Such sources are shown at a passable place of the
supervisor's own mount table. Elsewhere nothing is changed.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from cloud_ml.engines.local import linux

_PLACE = Path("/mnt")


class Exposure:
    """Gives for each path one that any user can reach. One per supervisor, since it keeps a
    mount table.
    """

    def __init__(self, *, needed: bool) -> None:
        self._needed = needed
        self._open = False
        self._mounted: dict[str, str] = {}
        self._names = itertools.count(1)
        self._reach: dict[str, bool] = {}

    def path(self, source: str) -> str:
        """``source`` itself, or where it is shown.

        Raises:
            OSError: It does not exist, or mounting is not permitted.
        """
        if not self._needed or self._reachable(os.path.dirname(source)):  # noqa: PTH120 - a dozen at each start
            return source
        if source not in self._mounted:
            self._mounted[source] = self._mount(Path(source))
        return self._mounted[source]

    def _reachable(self, folder: str) -> bool:
        """``passable``, remembered: what a job is shown lies in few places."""
        if folder not in self._reach:
            above = os.path.dirname(folder)  # noqa: PTH120
            self._reach[folder] = _open_to_all(folder) and (
                above == folder or self._reachable(above)
            )
        return self._reach[folder]

    def open(self) -> None:
        """Take the mount table now: processes forked from here on see what is shown later.

        Raises:
            OSError: Not permitted.
        """
        if self._needed and not self._open:
            linux.leave_mount_namespace()
            linux.mount_tmpfs(_PLACE)
            self._open = True

    def close(self) -> None:
        """Show nothing any more; the mount table stays, for what comes next."""
        for target in self._mounted.values():
            linux.unmount(Path(target))
        self._mounted.clear()
        self._reach.clear()

    def _mount(self, source: Path) -> str:
        self.open()
        target = _PLACE / str(next(self._names))
        if source.is_dir():
            target.mkdir()
        else:
            target.touch()
        linux.bind_mount(source, target)
        return str(target)


def passable(folder: Path) -> bool:
    """Whether any user may walk through ``folder`` (as far as it exists) and everything above
    it.
    """
    return all(_open_to_all(str(level)) for level in (folder, *folder.parents))


def _open_to_all(folder: str) -> bool:
    try:
        return bool(os.stat(folder).st_mode & 0o001)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return True
