"""What is being uploaded at this moment, by organisation: so that several uploads at once share
one quota.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from cloud_ml.errors import QuotaExceeded
from cloud_ml.models import common


class PendingUploads:
    """Bytes on their way in through this server. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()

    def under_way(self, org: str) -> int:
        """Bytes of uploads that are not over."""
        with self._lock:
            return self._under_way[org]

    def begin(self, org: str, room: int | None, check: Callable[[], None] = lambda: None) -> Share:
        """One more upload; ``room`` is what the quota leaves beside all that is there and under
        way.

        ``check`` is called for each piece of it, and may refuse it.
        """
        with self._lock:
            return Share(self, org, None if room is None else self._taken[org] + room, check)

    def left(self, org: str, most: int | None) -> int:
        """What is left of the room that an upload was given with ``begin``."""
        with self._lock:
            return max(0, (most or 0) - self._taken[org])

    def move(self, org: str, under_way: int, taken: int, most: int | None) -> bool:
        """Count bytes that come, stay or go; ``False``, and nothing, if that would be more than
        ``most``.
        """
        with self._lock:
            if most is not None and self._taken[org] + taken > most:
                return False
            self._under_way[org] += under_way
            self._taken[org] += taken
            return True


class Share:
    """An upload's part of it. Whatever others of the organisation take meanwhile is not there
    for this one.
    """

    def __init__(
        self, pending: PendingUploads, org: str, most: int | None, check: Callable[[], None]
    ) -> None:
        self._check = check
        self._pending = pending
        self._org = org
        self._most = most
        self._size = 0

    def take(self, size: int) -> None:
        """Make room for bytes that have come.

        Raises:
            QuotaExceeded: There is none.
            OutOfSpace: The disk is nearly full.
        """
        self._check()
        if not self._pending.move(self._org, size, size, self._most):
            raise no_room(self._pending.left(self._org, self._most) + self._size)
        self._size += size

    def keep(self) -> None:
        """The upload is whole: from now on it counts with what is there."""
        size, self._size = self._size, 0
        self._pending.move(self._org, -size, 0, None)

    def drop(self) -> None:
        """The upload is given up; harmless after ``keep``."""
        size, self._size = self._size, 0
        self._pending.move(self._org, -size, -size, None)


def no_room(room: int) -> QuotaExceeded:
    """The answer to an upload that the quota of storage has no room for."""
    return QuotaExceeded(
        f"the organisation's quota of storage has room for {common.format_memory(room)} more",
        field="body",
        allowed=f"at most {room} bytes",
        hint="remove what is not needed any more, or ask an administrator for more",
    )
