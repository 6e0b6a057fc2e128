"""The ports of tasks that find each other: distinct among all jobs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from cloud_ml.errors import TryAgain


class TaskPorts:
    """Gives out ports, and learns from committed statuses which ones are taken. Belongs to one
    event loop.

    Those that are free for the longest time are given out first, so that nobody meets the
    connections of the job before.

    Args:
        ranges: The ports.
    """

    def __init__(self, ranges: Sequence[range] = ()) -> None:
        # In the order in which they are given out; a dictionary, from whose middle they are taken.
        self._free = dict.fromkeys(port for ports in ranges for port in ports)
        self._of: dict[str, tuple[int, ...]] = {}
        self._chosen: dict[str, tuple[int, ...]] = {}  # for the next attempt, not yet committed
        self._known = frozenset(self._free)
        self._taken: set[int] = set()

    @property
    def taken(self) -> int:
        """How many ports jobs have, also those that are no longer given out."""
        return len(self._taken)

    def note(self, uid: str, ports: Sequence[int]) -> None:
        """A job has these ports."""
        if tuple(ports) == self._of.get(uid, ()):
            return
        before = self._ports_of(uid)
        self._of[uid] = tuple(ports)
        if self._chosen.get(uid) == tuple(ports):
            del self._chosen[uid]
        self._change(before, self._ports_of(uid))

    def free(self, uid: str) -> None:
        """A job needs its ports no more."""
        before = self._ports_of(uid)
        self._of.pop(uid, None)
        self._chosen.pop(uid, None)
        self._change(before, set())

    def shortage(self, count: int) -> str:
        """Why a job that needs so many has to wait until others end; empty if it has not to, or
        if there will never be enough.
        """
        free = len(self._free)
        if count <= free or count > len(self._known):
            return ""
        return f"{count} ports are needed, and {free} of engine.ports are free"

    def take(
        self, uid: str, count: int, last: Sequence[int] = (), *, keeps: bool = False
    ) -> tuple[int, ...]:
        """So many ports for the next attempt of a job; the same if asked again before ``note``, and
        for as many.

        Args:
            uid: The job.
            count: How many.
            last: Those of its last attempt.
            keeps: Whether it gets these first. Otherwise it gets them only if there are too few
                others.

        Raises:
            TryAgain: Too few are free.
        """
        if count and len(self._chosen.get(uid, ())) != count:
            self._give_back_chosen(uid)
            before = self._ports_of(uid)
            found = tuple(itertools.islice(self._candidates(before, last, keeps), count))
            if len(found) < count:
                raise TryAgain(
                    f"{count} ports are needed, and {len(found)} of engine.ports are free"
                )
            self._chosen[uid] = found
            self._change(before, self._ports_of(uid))
        return self._chosen.get(uid, ())

    def room_for(self, uid: str) -> int:
        """How many ports the next attempt of a job could have."""
        others = self._taken - self._ports_of(uid)
        return len(self._known) - len(self._known & others)

    def _give_back_chosen(self, uid: str) -> None:
        before = self._ports_of(uid)
        self._chosen.pop(uid, None)
        self._change(before, self._ports_of(uid))

    def _candidates(self, own: Collection[int], last: Sequence[int], keeps: bool) -> Iterator[int]:
        """All that the job may have, those of its last attempt before the others or behind them."""
        passed = frozenset(last)
        others = (port for port in self._free if port not in passed)
        mine = (port for port in last if port in self._known)
        again = (port for port in mine if port in own or port not in self._taken)
        return itertools.chain(again, others) if keeps else itertools.chain(others, again)

    def _ports_of(self, uid: str) -> set[int]:
        return {*self._of.get(uid, ()), *self._chosen.get(uid, ())}

    def _change(self, before: set[int], after: set[int]) -> None:
        self._taken -= before - after
        self._taken |= after
        for port in after:
            self._free.pop(port, None)
        for port in sorted((before - after) & self._known):
            self._free[port] = None
