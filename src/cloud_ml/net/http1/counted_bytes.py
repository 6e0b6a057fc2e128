"""What one connection keeps in memory, as the budgets of all connections count it."""

from collections.abc import Iterable

from cloud_ml.net.http1.calls import HttpCall, rest_of
from cloud_ml.net.http1.limits import Limits
from cloud_ml.net.http1.paced_writer import PacedWriter


class CountedBytes:
    """Bytes of bodies that are not answered, and of answers that the peer has not read.

    Attributes:
        unread: The latter.
    """

    __slots__ = ("_bodies", "_budget", "_unread_budget", "unread")

    def __init__(self, limits: Limits) -> None:
        self._budget = limits.budget
        self._unread_budget = limits.unread_budget
        self._bodies = 0
        self.unread = 0

    def count(self, size: int) -> None:
        """So many bytes of bodies are kept, or, below zero, are so no more."""
        self._bodies += size
        self._budget.add(size)

    def count_unread(self, size: int) -> None:
        """So many bytes of answers wait for the peer, or, below zero, do so no more."""
        self.unread += size
        if self._unread_budget is not None:
            self._unread_budget.add(size)

    def recount_unread(
        self, calls: Iterable[HttpCall], long: PacedWriter | None, buffered: int
    ) -> None:
        """Count what still waits: answers behind others, and ``buffered`` bytes of the
        transport.
        """
        answered = [call for call in calls if call.done]
        behind = sum(len(call.answer) for call in answered)
        if long is not None:
            behind += long.size + sum(sum(map(len, rest_of(call))) for call in answered)
        self.count_unread(behind + buffered - self.unread)

    def release(self) -> None:
        """Nothing is kept any more."""
        self.count(-self._bodies)
        self.count_unread(-self.unread)
