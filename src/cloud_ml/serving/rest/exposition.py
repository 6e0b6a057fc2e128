"""How Prometheus reads metrics: its text format 0.0.4, and OpenMetrics 1.0 for scrapers that ask
for it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cloud_ml.serving.call_metrics import Histogram

Labels = dict[str, str]
Values = Iterable[tuple[Labels, float]]

_PROMETHEUS = b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\nVary: Accept\r\n"
_OPENMETRICS = (
    b"Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\nVary: Accept\r\n"
)


class Series(NamedTuple):
    """A histogram with its labels. ``unit`` is what a value of it is multiplied with."""

    labels: Labels
    histogram: Histogram
    unit: float = 1.0


class Exposition:
    """Writes families of metrics, either way."""

    def __init__(self, *, openmetrics: bool) -> None:
        self._openmetrics = openmetrics
        self.fields = _OPENMETRICS if openmetrics else _PROMETHEUS

    def counter(self, name: str, described: str, values: Values) -> Iterator[str]:
        """A family of counters. OpenMetrics names a family without the ending ``_total``, and
        wants it on each.
        """
        if not self._openmetrics:
            yield from _family(name, "counter", described)
        elif name.endswith("_total"):
            yield from _family(name.removesuffix("_total"), "counter", described)
        else:
            yield from _family(name, "unknown", described)
        for labels, value in values:
            yield _line(name, labels, value)

    def gauge(self, name: str, described: str, values: Values) -> Iterator[str]:
        """A family of gauges."""
        yield from _family(name, "gauge", described)
        for labels, value in values:
            yield _line(name, labels, value)

    def histogram(self, name: str, described: str, series: Iterable[Series]) -> Iterator[str]:
        """A family of histograms, without those that counted nothing.

        A histogram that counted has all its buckets: a sum over several by bound would be wrong
        without.
        """
        yield from _family(name, "histogram", described)
        for labels, data, unit in series:
            total = sum(data.counts)
            if not total:
                continue
            reached = 0
            for bound, count in zip(data.bounds, data.counts, strict=False):
                reached += count
                yield _line(f"{name}_bucket", {**labels, "le": self._bound(bound * unit)}, reached)
            yield _line(f"{name}_bucket", {**labels, "le": "+Inf"}, total)
            yield _line(f"{name}_sum", labels, data.total * unit)
            yield _line(f"{name}_count", labels, total)

    def end(self) -> Iterator[str]:
        """The last line, where the format has one."""
        if self._openmetrics:
            yield "# EOF"

    def _bound(self, bound: float) -> str:
        # OpenMetrics 1.0 wants bounds of buckets as floats: `1.0` and not `1`.
        text = f"{bound:g}"
        return f"{text}.0" if self._openmetrics and text.isdigit() else text


def wants_openmetrics(accept: str) -> bool:
    """Whether an ``Accept`` field prefers OpenMetrics to the text format."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for each in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        if kind in weights:
            weights[kind] = max(weights[kind], _weight(parameters))
    openmetrics = weights["application/openmetrics-text"]
    return openmetrics > 0 and openmetrics >= weights["text/plain"]


def _weight(parameters: list[str]) -> float:
    """The weight of a media range, 1 where it has none; 0 for a version that is not written, or
    no number.
    """
    weight = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "q":
            try:
                weight = float(value)
            except ValueError:
                return 0.0
        elif name == "version" and value.strip('"') not in ("0.0.4", "1.0.0"):
            return 0.0
    return weight if 0 < weight <= 1 else 0.0


def _family(name: str, kind: str, described: str) -> Iterator[str]:
    yield f"# HELP {name} {described}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Labels, value: float) -> str:
    written = ",".join(f'{key}="{_escape_label(text)}"' for key, text in labels.items())
    return f"{name}{{{written}}} {value!r}" if written else f"{name} {value!r}"


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
