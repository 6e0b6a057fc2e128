"""Metrics of jobs, as the modern surface answers them.

JSON has no NaN and no infinities: they are the texts ``NaN``, ``Infinity`` and ``-Infinity``, as in
the JSON of protocol buffers. The SDK gives numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from cloud_ml.models import codec

MetricValue = float | str
_LAST = 253_402_300_799_000
"""The end of the year 9999, in milliseconds since 1970."""
_SECONDS = [f"{number:02}." for number in range(60)]
_MILLISECONDS = [f"{number:03}000Z" for number in range(1000)]
"""Ends of times, which are found faster than they are written."""


@dataclass(frozen=True, kw_only=True)
class MetricSeries:
    """A metric that a task of a job has reported.

    ``count`` points are there, of which ``nan`` are no number; ``min`` and ``max`` are null without
    one. ``source`` is ``report``, ``event_file`` or ``log``. ``attempt`` is the newest that has
    reported. Points of ``earlier`` attempts that a later one
    has repeated are counted apart. Of all these, ``removed`` are not kept any more, because the
    operator's setting ``metrics.retention_days`` says so.
    """

    name: str
    task: str
    count: int
    first: MetricValue
    last: MetricValue
    min: MetricValue | None = None
    max: MetricValue | None = None
    last_step: int
    last_at: datetime
    nan: int = 0
    attempt: int = 1
    earlier: int = 0
    source: str = "report"
    removed: int = 0


@dataclass(frozen=True, kw_only=True)
class SummaryTag:
    """A tag of TensorBoard's event files with histograms, images, audio or texts.

    Their contents are not kept: look at them with a TensorBoard. ``kind`` is ``histogram``,
    ``image``, ``audio``, ``text`` or ``other``. ``count`` are all that were written, also those that
    a restart has written again; the newest of them has the step ``last_step``.
    """

    name: str
    kind: str
    count: int
    last_step: int
    last_at: datetime


@dataclass(frozen=True, kw_only=True)
class JobSeries:
    """The metrics of a job, by task and name; and which tags of its event files have ``summaries``
    that are no metrics, by name.
    """

    items: list[MetricSeries]
    summaries: list[SummaryTag] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class MetricPoint:
    """One value of a metric, at a step."""

    step: int
    at: datetime
    value: MetricValue


@dataclass(frozen=True)
class LoggedValue:
    """A value of a metric that is to be logged; ``at`` is in milliseconds since 1970."""

    name: str
    value: float
    step: int
    at: int


@dataclass(frozen=True, kw_only=True)
class MetricPoints:
    """Points of a metric in the order of their steps.

    If the range has more than were asked for, these are the lowest and the highest value of each
    part of it, and its first and last point. If all were asked for, ``next`` goes into ``after`` for
    the next page.
    """

    name: str
    task: str
    items: list[MetricPoint]
    next: str | None = None


def points_document(
    name: str, task: str, points: Iterable[tuple[int, int, float]]
) -> dict[str, Any]:
    """A ``MetricPoints`` in JSON, of steps, milliseconds since 1970, and values.

    There may be thousands, so nothing else is made of them on the way.
    """
    items = [
        {
            "step": step,
            "at": format_milliseconds(at),
            "value": value if math.isfinite(value) else to_wire(value),
        }
        for step, at, value in points
    ]
    return {"name": name, "task": task, "items": items}


def moment_of(milliseconds: int) -> datetime:
    """A point in time. What is later than all that a calendar has is its end: clients may say so."""
    second, rest = divmod(min(milliseconds, _LAST), 1000)
    return datetime.fromtimestamp(second, UTC).replace(microsecond=1000 * rest)


def format_milliseconds(milliseconds: int) -> str:
    """A point in time as ``codec.format_time`` writes it, which is slower."""
    milliseconds = min(milliseconds, _LAST)
    rest = milliseconds % 60_000
    return (
        _minute_text(milliseconds // 60_000) + _SECONDS[rest // 1000] + _MILLISECONDS[rest % 1000]
    )


@lru_cache(1024)
def _minute_text(minute: int) -> str:
    """A minute since 1970. Points of a chart share most of theirs, and the calendar takes longest."""
    return moment_of(60_000 * minute).isoformat()[:-8]


def read_points(document: Any) -> list[MetricPoint]:
    """The points of a ``MetricPoints`` in JSON, with numbers in the place of texts.

    There may be thousands, so they are read without the codec, which reads what is not as it should
    be and says so.

    Raises:
        InvalidRequest: The document is none.
    """
    try:
        return [
            MetricPoint(
                step=one["step"], at=datetime.fromisoformat(one["at"]), value=float(one["value"])
            )
            for one in document["items"]
        ]
    except (KeyError, TypeError, ValueError):
        found = codec.decode(MetricPoints, document, ignore_unknown=True).items
        return [with_number(one) for one in found]


def to_wire(value: float) -> MetricValue:
    """A number as JSON can say it."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def with_number(point: MetricPoint) -> MetricPoint:
    """The point with a number in the place of its text."""
    return replace(point, value=float(point.value))


def with_numbers(series: MetricSeries) -> MetricSeries:
    """The series with numbers in the place of texts."""
    return replace(
        series,
        first=float(series.first),
        last=float(series.last),
        min=None if series.min is None else float(series.min),
        max=None if series.max is None else float(series.max),
    )
