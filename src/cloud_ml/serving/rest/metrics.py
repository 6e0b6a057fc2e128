"""``/metrics``: what was counted, as Prometheus reads it; also where TensorFlow Serving has it,
with its main names.
"""

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.heads import Head
from cloud_ml.net.listening import Alive
from cloud_ml.serving.call_metrics import Refusals
from cloud_ml.serving.errors import CODES
from cloud_ml.serving.loaded import LoadedVersion
from cloud_ml.serving.rest.exposition import Exposition, Labels, Series, wants_openmetrics
from cloud_ml.serving.rest.service import Answer
from cloud_ml.serving.table import ModelTable

_PATHS = ("/metrics", "/monitoring/prometheus/metrics")
_HISTOGRAMS = (
    (
        "request_seconds",
        "Seconds from the arrival of the oldest request of a batch to its answers.",
        "request_s",
    ),
    ("run_seconds", "Seconds that a model ran, for each batch.", "run_s"),
    ("batch_rows", "Rows of each batch.", "rows"),
)


class MetricsDoor:
    """Tells what the models of a table did."""

    def __init__(self, table: ModelTable, refusals: Refusals, alive: Alive) -> None:
        self._table = table
        self._refusals = refusals
        self._alive = alive

    def route(self, method: str, path: str, head: Head) -> Answer | None:
        """See ``rest.service.Door``."""
        if method != "GET" or path not in _PATHS:
            return None
        exposition = Exposition(openmetrics=wants_openmetrics(head.fields.get("accept", "")))

        def answer(call: HttpCall, _body: bytes) -> None:
            lines = "".join(f"{line}\n" for line in self._lines(exposition))
            call.reply(200, exposition.fields, lines.encode())

        return answer

    def _lines(self, exposition: Exposition) -> Iterator[str]:
        yield from exposition.counter(
            "cloudml_serving_requests_total",
            "Requests that reached a model, by how they were answered.",
            (
                ({**labels, "protocol": protocol, "code": CODES[code]}, count)
                for labels, version, name in self._signatures()
                for (protocol, code), count in sorted(version.tally(name).answers.items())
            ),
        )
        yield from exposition.counter(
            "cloudml_serving_refused_total",
            "Requests that no model saw, by how they were answered.",
            (
                ({"protocol": protocol, "code": CODES[code]}, count)
                for (protocol, code), count in sorted(self._refusals.counts.items())
            ),
        )
        for metric, described, field in _HISTOGRAMS:
            yield from exposition.histogram(
                f"cloudml_serving_{metric}",
                described,
                (
                    Series(labels, getattr(version.tally(name), field))
                    for labels, version, name in self._signatures()
                ),
            )
        yield from exposition.gauge(
            "cloudml_serving_waiting_requests",
            "Requests that wait for a model.",
            ((labels, version.waiting(name)) for labels, version, name in self._signatures()),
        )
        yield from exposition.gauge(
            "cloudml_serving_batched",
            "1 where calls of several clients run together, and who decided it.",
            (
                ({**labels, "decided_by": batching.decided_by}, int(batching.enabled))
                for labels, version, name in self._signatures()
                if (batching := version.model.signatures[name].batching) is not None
            ),
        )
        yield from exposition.gauge(
            "cloudml_serving_connections", "Connections of clients.", [({}, len(self._alive))]
        )
        yield from self._as_tensorflow_serving(exposition)
        yield from _process(exposition)
        yield from exposition.end()

    def _signatures(self) -> Iterator[tuple[Labels, LoadedVersion, str]]:
        for model in list(self._table.models.values()):
            for version in list(model.versions.values()):
                for name in version.model.signatures:
                    labels = {
                        "model": version.name,
                        "version": str(version.number),
                        "signature": name,
                    }
                    yield labels, version, name

    def _as_tensorflow_serving(self, exposition: Exposition) -> Iterator[str]:
        counts: dict[tuple[str, int], int] = {}
        latencies: list[Series] = []
        for labels, version, name in self._signatures():
            tally = version.tally(name)
            for (_, code), count in tally.answers.items():
                counts[version.name, code] = counts.get((version.name, code), 0) + count
            named = {"model_name": version.name, "version": labels["version"], "signature": name}
            latencies.append(Series(named, tally.run_s, 1e6))
        yield from exposition.histogram(
            ":tensorflow:serving:runtime_latency",
            "Microseconds that a model ran, for each batch.",
            latencies,
        )
        yield from exposition.counter(
            ":tensorflow:serving:request_count",
            "Requests that reached a model.",
            (
                ({"model_name": model, "status": CODES[code]}, count)
                for (model, code), count in sorted(counts.items())
            ),
        )


def _process(exposition: Exposition) -> Iterator[str]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = used.ru_utime + used.ru_stime
    yield from exposition.counter(
        "process_cpu_seconds_total", "Processor time of the server.", [({}, seconds)]
    )
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        yield from exposition.gauge(
            "process_resident_memory_bytes", "Memory of the server.", [({}, memory)]
        )
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        yield from exposition.gauge("process_open_fds", "Files and connections.", [({}, files)])
