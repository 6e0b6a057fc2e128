"""What is counted while requests are served: integers, read when somebody asks for them."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

SECONDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)

BATCH_SIZES = 1024
"""Different numbers of rows that runs are counted by, for each signature; further ones count in
sums only.
"""


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

    ``answers`` are requests by protocol and gRPC code; ``request_s`` counts each of them with the
    time since the oldest of its batch arrived, ``failed_s`` is the part of those that failed;
    ``run_s`` counts batches. ``infer_s`` and ``copy_s`` are seconds of runs, and of bringing rows
    together before them, for each request. ``sizes`` has runs, their seconds and those of bringing
    rows together, by rows of the batch. ``last_run`` is when the last run began, by
    ``time.perf_counter``; 0 before the first.
    """

    __slots__ = (
        "_other_sizes",
        "answers",
        "copy_s",
        "failed_s",
        "infer_s",
        "last_run",
        "request_s",
        "run_s",
        "sizes",
    )

    def __init__(self) -> None:
        self.answers: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.request_s = Histogram(SECONDS)
        self.run_s = Histogram(SECONDS)
        self.failed_s = self.infer_s = self.copy_s = self.last_run = 0.0
        self.sizes: dict[int, list[float]] = {}
        self._other_sizes = Histogram(ROWS)

    @property
    def rows(self) -> Histogram:
        """Batches by their rows."""
        made = Histogram(ROWS)
        made.counts, made.total = list(self._other_sizes.counts), self._other_sizes.total
        for rows, size in list(self.sizes.items()):  # a thread may add to it
            made.add(rows, int(size[0]))
        return made

    def count_run(
        self, rows: int, requests: int, begun: float, took: float, copying: float
    ) -> None:
        """Count a batch that ran; ``run_s.add`` is written out, since this is done for each."""
        run_s = self.run_s
        run_s.counts[bisect_left(SECONDS, took)] += 1
        run_s.total += took
        self.infer_s += took * requests
        self.copy_s += copying * requests
        self.last_run = begun
        size = self.sizes.get(rows)
        if size is None:
            if len(self.sizes) >= BATCH_SIZES:
                self._other_sizes.add(rows)
                return
            size = self.sizes[rows] = [0, 0.0, 0.0]
        size[0] += 1
        size[1] += took
        size[2] += copying


class Refusals:
    """Requests that no model saw: ``counts`` by protocol and gRPC code."""

    def __init__(self) -> None:
        self.counts: defaultdict[tuple[str, int], int] = defaultdict(int)

    def add(self, protocol: str, code: int) -> None:
        """One more."""
        self.counts[protocol, code] += 1
