"""``/metrics``: what was counted, as Prometheus reads it; also where TensorFlow Serving has it, with its main names."""

import os
import resource
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from cloud_ml.serving.errors import CODES
from cloud_ml.serving.http1.calls import HttpCall
from cloud_ml.serving.http1.heads import Head
from cloud_ml.serving.listening import Alive
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.rest.service import Answer
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.tallies import Histogram, Refusals

_TYPE = b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
_PATHS = ("/metrics", "/monitoring/prometheus/metrics")
Labels = dict[str, str]


class MetricsDoor:
    """Tells what the models of a table did."""

    def __init__(self, table: ModelTable, refusals: Refusals, alive: Alive) -> None:
        self._table = table
        self._refusals = refusals
        self._alive = alive

    def route(self, method: str, path: str, _head: Head) -> Answer | None:
        """See ``rest.service.Door``."""
        return self._answer if method == "GET" and path in _PATHS else None

    def _answer(self, call: HttpCall, _body: bytes) -> None:
        call.reply(200, _TYPE, "".join(f"{line}\n" for line in self._lines()).encode())

    def _lines(self) -> Iterator[str]:
        yield from _counter(
            "cloudml_serving_requests_total",
            "Requests that reached a model, by how they were answered.",
            (
                ({**labels, "protocol": protocol, "code": CODES[code]}, count)
                for labels, version, name in self._signatures()
                for (protocol, code), count in sorted(version.tally(name).answers.items())
            ),
        )
        yield from _counter(
            "cloudml_serving_refused_total",
            "Requests that no model saw, by how they were answered.",
            (
                ({"protocol": protocol, "code": CODES[code]}, count)
                for (protocol, code), count in sorted(self._refusals.counts.items())
            ),
        )
        for metric, told, field in (
            (
                "request_seconds",
                "Seconds from the arrival of the oldest request of a batch to its answers.",
                "request_s",
            ),
            ("run_seconds", "Seconds that a model ran, for each batch.", "run_s"),
            ("batch_rows", "Rows of each batch.", "rows"),
        ):
            yield f"# HELP cloudml_serving_{metric} {told}"
            yield f"# TYPE cloudml_serving_{metric} histogram"
            for labels, version, name in self._signatures():
                yield from _histogram(f"cloudml_serving_{metric}", labels, getattr(version.tally(name), field))
        yield from _gauge(
            "cloudml_serving_waiting_requests",
            "Requests that wait for a model.",
            ((labels, version.waiting(name)) for labels, version, name in self._signatures()),
        )
        yield from _gauge("cloudml_serving_connections", "Connections of clients.", [({}, len(self._alive))])
        yield from self._as_tensorflow_serving()
        yield from _process()

    def _signatures(self) -> Iterator[tuple[Labels, LoadedVersion, str]]:
        for model in list(self._table.models.values()):
            for version in list(model.versions.values()):
                for name in version.model.signatures:
                    labels = {"model": version.name, "version": str(version.number), "signature": name}
                    yield labels, version, name

    def _as_tensorflow_serving(self) -> Iterator[str]:
        counts: dict[tuple[str, int], int] = {}
        yield "# TYPE :tensorflow:serving:runtime_latency histogram"
        for labels, version, name in self._signatures():
            tally = version.tally(name)
            for (_, code), count in tally.answers.items():
                counts[version.name, code] = counts.get((version.name, code), 0) + count
            named = {"model_name": version.name, "version": labels["version"], "signature": name}
            yield from _histogram(":tensorflow:serving:runtime_latency", named, tally.run_s, 1e6)
        yield "# TYPE :tensorflow:serving:request_count counter"
        for (model, code), count in sorted(counts.items()):
            yield _line(":tensorflow:serving:request_count", {"model_name": model, "status": CODES[code]}, count)


def _counter(name: str, told: str, values: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} counter"
    for labels, value in values:
        yield _line(name, labels, value)


def _gauge(name: str, told: str, values: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} gauge"
    for labels, value in values:
        yield _line(name, labels, value)


def _histogram(name: str, labels: Labels, seen: Histogram, unit: float = 1.0) -> Iterator[str]:
    reached = 0
    for bound, count in zip(seen.bounds, seen.counts, strict=False):
        reached += count
        yield _line(f"{name}_bucket", {**labels, "le": f"{bound * unit:g}"}, reached)
    reached += seen.counts[-1]
    yield _line(f"{name}_bucket", {**labels, "le": "+Inf"}, reached)
    yield _line(f"{name}_sum", labels, seen.total * unit)
    yield _line(f"{name}_count", labels, reached)


def _line(name: str, labels: Labels, value: float) -> str:
    told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{told}}} {value!r}" if told else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _process() -> Iterator[str]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield from _counter(
        "process_cpu_seconds_total", "Processor time of the server.", [({}, used.ru_utime + used.ru_stime)]
    )
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        yield from _gauge(
            "process_resident_memory_bytes", "Memory of the server.", [({}, pages * os.sysconf("SC_PAGE_SIZE"))]
        )
        yield from _gauge("process_open_fds", "Files and connections.", [({}, len(os.listdir("/proc/self/fd")))])  # noqa: PTH208
