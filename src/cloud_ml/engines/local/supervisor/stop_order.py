"""When each task of a gang that stops gets SIGTERM."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cloud_ml.domain.workloads.stop_order import last_call_s, next_to_stop


class StopOrder:
    """Names each task once for each stop: those that are ``stopped_last`` when the others have
    ended, or when little of the grace time is left. Times are monotonic.
    """

    def __init__(self, stopped_last: Collection[str]) -> None:
        self._last = frozenset(stopped_last)
        self._signalled: set[str] = set()
        self._last_call_at: float | None = None

    @property
    def due_at(self) -> float | None:
        """When all are signalled at the latest; ``None`` if nobody waits for that."""
        return None if self._last <= self._signalled else self._last_call_at

    def begin(self, kill_at: float, grace_s: float) -> None:
        """The gang stops, and is killed at ``kill_at``. In a second call all are signalled again."""
        self._signalled.clear()
        self._last_call_at = kill_at - last_call_s(grace_s)

    def shorten(self, kill_at: float, grace_s: float) -> None:
        """The gang that stops is killed sooner."""
        if self._last_call_at is not None:
            self._last_call_at = min(self._last_call_at, kill_at - last_call_s(grace_s))

    def take(self, living: Sequence[str], now: float) -> list[str]:
        """Those of the ``living`` that get SIGTERM now, and did not before."""
        if self._last_call_at is None:
            return []
        short = now >= self._last_call_at
        names = next_to_stop(living, self._last, time_is_short=short)
        found = [name for name in names if name not in self._signalled]
        self._signalled.update(found, self._last if short else ())
        return found
