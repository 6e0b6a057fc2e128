"""Groups made ahead and removed behind."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence

from cloud_ml.engines.local.cgroups.base import Group, Hierarchy

_counter = itertools.count(1)


class Pool:
    """Groups made ahead and removed behind, so that neither is waited for."""

    def __init__(self, hierarchy: Hierarchy, size: int = 4) -> None:
        self._hierarchy = hierarchy
        self._size = size
        self._ready: list[Group] = []
        self._used: list[Group] = []

    def take(self) -> Group:
        """A fresh group.

        Raises:
            OSError: None is ready and none can be made.
        """
        return self._ready.pop() if self._ready else self._make()

    def give_back(self, group: Group) -> None:
        """Hand in a used group; it is emptied and removed by ``tidy``."""
        self._used.append(group)

    def tidy(self) -> bool:
        """Remove one used group or make one ready; false when there is nothing to do at present."""
        for group in self._used:
            group.kill()
            if group.remove():
                # The loop over this list ends here, so changing it is safe.
                self._used.remove(group)
                return True
        if len(self._ready) < self._size:
            with contextlib.suppress(OSError):
                self._ready.append(self._make())
                return True
        return False

    @property
    def waiting(self) -> bool:
        """Whether a used group could not be removed yet."""
        return bool(self._used)

    def sweep(self, in_use: Sequence[str]) -> None:
        """Take over what a predecessor left: everything but the groups named."""
        self.take_over([name for name in self._hierarchy.names() if name not in in_use])

    def take_over(self, names: Sequence[str]) -> None:
        """Remove groups that somebody else has taken, and needs no more."""
        self._used += map(self._hierarchy.group, names)

    def close(self) -> None:
        """Remove what is ready or empty; groups that are in use stay, and with them the folder
        above.
        """
        for group in (*self._ready, *self._used):
            group.remove()
        self._ready, self._used = [], []
        self._hierarchy.remove()

    def _make(self) -> Group:
        # The process id makes the name differ from those of an earlier spawner, whose groups may
        # still be in use.
        return self._hierarchy.make(f"task-{os.getpid()}-{next(_counter)}")
