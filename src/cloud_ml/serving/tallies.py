"""What is counted while requests are served: integers, read when somebody asks for them."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)


class Histogram:
    """How many values were at most each of some bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value that was seen so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Tally:
    """What one signature of one version did.

    ``answers`` are requests by protocol and gRPC code; ``request_s`` counts each of them with the time since the
    oldest of its batch arrived; ``run_s`` and ``rows`` count batches.
    """

    __slots__ = ("answers", "request_s", "rows", "run_s")

    def __init__(self) -> None:
        self.answers: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.request_s = Histogram(SECONDS)
        self.run_s = Histogram(SECONDS)
        self.rows = Histogram(ROWS)


class Refusals:
    """Requests that no model saw: ``counts`` by protocol and gRPC code."""

    def __init__(self) -> None:
        self.counts: defaultdict[tuple[str, int], int] = defaultdict(int)

    def add(self, protocol: str, code: int) -> None:
        """One more."""
        self.counts[protocol, code] += 1
