"""Several machines of the fake engine: where tasks run, and who waits for a place.

Each machine has memory of its own. So tasks that fit together by their sum may find no place, as
on a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from cloud_ml.engines.gang import GangKey, ProcessPlan

_LOOPBACK = "127.0.0.1"
_Task = tuple[GangKey, str]


class Nodes:
    """Machines by their names ``node-1``, ``node-2`` and so on.

    Args:
        memory_bytes: What each has. Without any, there is one machine without a name, which has
            room for everything.
    """

    def __init__(self, memory_bytes: Sequence[int] = ()) -> None:
        self.memory_bytes = {
            f"node-{number}": amount for number, amount in enumerate(memory_bytes, 1)
        }
        self.lost: set[str] = set()
        self._held: dict[_Task, tuple[str, int]] = {}
        """Where each task is that has a place, and the memory that it holds there."""
        self._addresses: dict[_Task, str] = {}
        """What names stand for, until their gang is over."""

    @property
    def are_several(self) -> bool:
        return bool(self.memory_bytes)

    def place(self, key: GangKey, plans: Sequence[ProcessPlan]) -> str:
        """Give all of these tasks places, or none; why not, empty if they have them."""
        if not self.are_several:
            self._take({(key, plan.name): ("", 0) for plan in plans})
            return ""
        found: dict[_Task, tuple[str, int]] = {}
        for count, plan in enumerate(plans):
            amount = plan.memory_bytes or 0
            node, free = self._roomiest({**self._held, **found})
            if amount > free:
                return f"{count} of {len(plans)} tasks fit; no machine has room for {plan.name}"
            found[key, plan.name] = (node, amount)
        self._take(found)
        return ""

    def has_place(self, key: GangKey, task: str) -> bool:
        """Whether a task is on one of the machines."""
        return (key, task) in self._held

    def node_of(self, key: GangKey, task: str) -> str:
        """The machine of a task; empty where there is one only."""
        return self._held[key, task][0]

    def address_of(self, key: GangKey, task: str) -> str | None:
        """The address that the name of a task stands for; ``None`` before it has a place."""
        return self._addresses.get((key, task))

    def release(self, key: GangKey, task: str) -> None:
        """The task needs its place no more. Its name stands for where it was."""
        self._held.pop((key, task), None)

    def release_all(self, key: GangKey) -> None:
        """The gang is over, and nobody asks for its names."""
        for table in (self._held, self._addresses):
            for each in [one for one in table if one[0] == key]:
                del table[each]

    def lose(self, node: str) -> list[_Task]:
        """A machine is gone, with these tasks."""
        self.lost.add(node)
        return [task for task, place in self._held.items() if place[0] == node]

    def _take(self, found: dict[_Task, tuple[str, int]]) -> None:
        self._held |= found
        for task, (node, _) in found.items():
            number = node.removeprefix("node-")
            self._addresses[task] = f"10.0.0.{number}" if number else _LOOPBACK

    def _roomiest(self, held: dict[_Task, tuple[str, int]]) -> tuple[str, int]:
        """The machine with the most memory free. Of equal ones, that with the fewest tasks."""
        used = list(held.values())
        free = {
            node: amount - sum(taken for there, taken in used if there == node)
            for node, amount in self.memory_bytes.items()
            if node not in self.lost
        }
        tasks = {node: sum(there == node for there, _ in used) for node in free}
        best = min(free, key=lambda node: (-free[node], tasks[node]), default="")
        return best, free.get(best, -1)
