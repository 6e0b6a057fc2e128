"""Numbers about the running server, in the text format of Prometheus. Thread-safe; nothing here
names a tenant.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Labels = tuple[str, ...]


class Family:
    """A metric with all its combinations of labels.

    Args:
        name: Begins with ``cloudml_``.
        help_text: One sentence.
        labels: Names of its labels. Their values come from small sets: each combination is kept for
            ever.
    """

    kind = "untyped"

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self._help = help_text
        self._labels = tuple(labels)
        self._lock = threading.Lock()

    def lines(self) -> Iterator[str]:
        """The metric as it is scraped."""
        yield f"# HELP {self.name} {self._help}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.samples()

    def samples(self) -> Iterator[str]:
        """A line for each number."""
        return iter(())

    def sample(self, values: Labels, number: float, *, suffix: str = "", **more: str) -> str:
        """One line."""
        pairs = [*zip(self._labels, values, strict=True), *more.items()]
        inside = ",".join(f'{name}="{_escape_label(value)}"' for name, value in pairs)
        return f"{self.name}{suffix}{'{' + inside + '}' if inside else ''} {number:.10g}"


class Counter(Family):
    """Only grows."""

    kind = "counter"

    def __init__(self, name: str, help_text: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help_text, labels)
        self._numbers: dict[Labels, float] = {}

    def add(self, *values: str, amount: float = 1) -> None:
        """Count."""
        with self._lock:
            self._numbers[values] = self._numbers.get(values, 0) + amount

    def samples(self) -> Iterator[str]:
        with self._lock:
            numbers = sorted(self._numbers.items())
        if not numbers and not self._labels:
            numbers = [((), 0.0)]
        return (self.sample(values, number) for values, number in numbers)


class Gauge(Counter):
    """Goes up and down."""

    kind = "gauge"

    @contextmanager
    def during(self, *values: str) -> Iterator[None]:
        """One more while the block runs."""
        self.add(*values)
        try:
            yield
        finally:
            self.add(*values, amount=-1)


class Reading(Family):
    """Is read when somebody asks: values of labels → number."""

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str],
        read: Callable[[], Mapping[Labels, float]],
        *,
        kind: str = "gauge",
    ) -> None:
        super().__init__(name, help_text, labels)
        self._read = read
        self.kind = kind

    def samples(self) -> Iterator[str]:
        return (self.sample(values, number) for values, number in sorted(self._read().items()))


class Histogram(Family):
    """How many took how long."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str] = (),
        bounds: Sequence[float] = SECONDS,
    ) -> None:
        super().__init__(name, help_text, labels)
        self._bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, seconds: float, *values: str) -> None:
        """Note one."""
        with self._lock:
            counts = self._counts.setdefault(values, [0] * (len(self._bounds) + 1))
            counts[bisect_left(self._bounds, seconds)] += 1
            self._sums[values] = self._sums.get(values, 0.0) + seconds

    def samples(self) -> Iterator[str]:
        with self._lock:
            seen = [
                (values, list(counts), self._sums[values])
                for values, counts in sorted(self._counts.items())
            ]
        for values, counts, total in seen:
            below = 0
            for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
                below += count
                yield self.sample(values, below, suffix="_bucket", le=bound)
            yield self.sample(values, total, suffix="_sum")
            yield self.sample(values, below, suffix="_count")


class Metrics:
    """All that this process counts. Parts are handed what concerns them."""

    def __init__(self) -> None:
        self.requests = Counter(
            "cloudml_http_requests_total", "Requests answered.", ("method", "route", "status")
        )
        self.latency = Histogram(
            "cloudml_http_request_seconds",
            "Time to the end of the answer; streams apart.",
            ("method", "route"),
        )
        self.open_requests = Gauge("cloudml_http_requests_open", "Requests under way.")
        self.refused_connections = Counter(
            "cloudml_http_connections_refused_total", "Connections cut.", ("why",)
        )
        self.streams = Gauge("cloudml_streams_open", "Followers of logs and of changes.", ("kind",))
        self.uploads = Gauge("cloudml_uploads_open", "Objects that are being received.")
        self.commits = Histogram(
            "cloudml_store_commit_seconds", "Time of a commit of the state store."
        )
        self.reconciles = Histogram(
            "cloudml_reconcile_seconds", "Time of one look at a job.", ("outcome",)
        )
        self._families: list[Family] = [
            family for family in vars(self).values() if isinstance(family, Family)
        ]  # fmt: skip
        self.add(_process())

    def add(self, families: Sequence[Family]) -> None:
        """Have further ones scraped."""
        self._families += families

    def text(self) -> str:
        """Everything, as it is scraped. Blocks as long as the readings do."""
        return "".join(f"{line}\n" for family in self._families for line in family.lines())


def _process() -> list[Family]:
    began = time.time()
    page = os.sysconf("SC_PAGE_SIZE")

    def memory() -> float:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - read at each scrape
            return float(file.read().split()[1]) * page

    def read(number: Callable[[], float]) -> Callable[[], Mapping[Labels, float]]:
        return lambda: {(): number()}

    return [
        Reading(
            "process_cpu_seconds_total",
            "Processor time.",
            (),
            read(time.process_time),
            kind="counter",
        ),
        Reading("process_resident_memory_bytes", "Memory that is resident.", (), read(memory)),
        Reading(
            "process_open_fds",
            "Open files.",
            (),
            read(lambda: float(len(os.listdir("/proc/self/fd")))),  # noqa: PTH208
        ),
        Reading("process_start_time_seconds", "When the process began.", (), read(lambda: began)),
    ]


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
