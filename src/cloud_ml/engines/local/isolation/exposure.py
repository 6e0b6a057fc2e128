"""Paths that a tenant's user can reach.

As root, jobs run as another user, and bubblewrap opens its sources as that user: below a private
folder (``/root``) they would be out of reach. Such sources are shown at a passable place of the
supervisor's own mount table. Elsewhere nothing is changed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from cloud_ml import linux

_PLACES = tuple(map(Path, ("/mnt", "/media", "/srv", "/opt")))
_OWN_PLACE = Path("/run/cloudml-exposed")


class Exposure:
    """Gives for each path one that any user can reach. One per supervisor, since it keeps a
    mount table.
    """

    def __init__(self, *, needed: bool) -> None:
        self._needed = needed
        self._place: Path | None = None
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
        if self._needed and self._place is None:
            self._open_place()

    def _open_place(self) -> Path:
        if self._place is None:
            place = place_to_mount()
            linux.leave_mount_namespace()
            linux.mount_tmpfs(place)
            self._place = place
        return self._place

    def close(self) -> None:
        """Show nothing any more; the mount table stays, for what comes next."""
        for target in self._mounted.values():
            linux.unmount(Path(target))
        self._mounted.clear()
        self._reach.clear()

    def _mount(self, source: Path) -> str:
        target = self._open_place() / str(next(self._names))
        if source.is_dir():
            target.mkdir()
        else:
            target.touch()
        linux.bind_mount(source, target)
        return str(target)


def place_to_mount(places: Sequence[Path] = _PLACES, own: Path = _OWN_PLACE) -> Path:
    """A folder that any user can reach and that is empty: what is mounted there hides nothing.

    Disks are often mounted below ``/mnt``, and the data folder may lie on one of them.

    Raises:
        OSError: There is none, and none can be made.
    """
    for place in places:
        if passable(place) and _is_empty(place):
            return place
    own.mkdir(mode=0o711, exist_ok=True)
    return own


def _is_empty(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return next(folder.iterdir(), None) is None
    return False


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
