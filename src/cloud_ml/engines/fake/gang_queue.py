"""The queue of the fake engine: gangs and tasks that wait until a machine has room for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloud_ml.engines.fake.nodes import Nodes
from cloud_ml.engines.gang import GangKey, ProcessPlan


class GangQueue:
    """Gangs that wait to start, in their order, and tasks that are to start again before them.

    Args:
        nodes: The machines.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._gangs: list[GangKey] = []
        self.tasks: list[tuple[GangKey, str]] = []
        """Tasks that start again when another machine has room for them."""

    @property
    def first(self) -> GangKey | None:
        """The gang whose turn it is."""
        return self._gangs[0] if self._gangs else None

    def __iter__(self) -> Iterator[GangKey]:
        """The gangs in their order."""
        return iter(self._gangs)

    def place(self, key: GangKey, plans: Sequence[ProcessPlan]) -> str:
        """Find places for these tasks, behind all gangs that wait already; why there are none."""
        if self._gangs and self._gangs[0] != key:
            why = "other gangs were there before"
        else:
            why = self._nodes.place(key, plans)
        if why and key not in self._gangs:
            self._gangs.append(key)
        if not why and key in self._gangs:
            self._gangs.remove(key)
        return why

    def drop(self, key: GangKey) -> None:
        """The gang is over: nothing of it waits any more."""
        self.tasks[:] = [task for task in self.tasks if task[0] != key]
        if key in self._gangs:
            self._gangs.remove(key)
