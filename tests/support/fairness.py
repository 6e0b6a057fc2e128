"""What an attack costs the callers who do no harm."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

CALLS = 120
FLOOR_S = 0.002
"""Differences that mean nothing on a busy machine."""
STALL_S = 0.1
"""A call this long waited for the attack, and not for a processor."""


class Latency:
    """Seconds that each of some calls took.

    An attack never rests, so it delays the median call as much as the slowest. Tests judge by the
    median, since the slowest of 120 calls depends on when the kernel gives a processor to three
    busy processes on two cores.
    """

    def __init__(self, seconds: Sequence[float]) -> None:
        self.median = statistics.median(seconds)
        self.p99 = statistics.quantiles(seconds, n=100)[98]

    @classmethod
    def of(cls, call: Callable[[], float]) -> Latency:
        """Call some times; ``call`` returns the seconds that it took."""
        return cls([call() for _ in range(CALLS)])

    def harmed(self, quiet: Latency) -> bool:
        """Whether calls took more than twice as long as quiet ones, or one of them stood still."""
        return self.median >= 2 * max(quiet.median, FLOOR_S) or self.p99 >= max(
            STALL_S, 2 * quiet.p99
        )

    def __repr__(self) -> str:
        return f"median {self.median * 1e3:.2f} ms, p99 {self.p99 * 1e3:.2f} ms"
