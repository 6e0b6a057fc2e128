"""What ``cloud_ml.job.report`` and ``params`` write, read on from anywhere in its file.

The lines are a tenant's. Nothing of them is believed that is no number within bounds, and a line
that says nothing is left out: a task may have been killed while it wrote one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cloud_ml.domain.metrics.points import LARGEST_STEP, LARGEST_TIME
from cloud_ml.models.common import is_unicode

LONGEST_LINE = 65_536
LONGEST_NAME = 250
LONGEST_PARAM = 6000
"""Characters of the value of a parameter, as in MLflow."""
MOST_METRICS = 1000
"""Of one report."""
_LARGEST_RESTART = 10**6
_COUNTED_RESTARTS = 1000
"""Starts behind them count as the same one: each start has chunks of its own."""
_OTHER_STARTS = 16
"""Series of other starts than the first that one read has. Where a start begins, a store may have
to look at the whole series, and nobody else writes meanwhile.
"""


class Value(NamedTuple):
    """A value that was reported. Without a ``step`` it is that after the last one of its series.

    ``restart`` counts the starts of the task within the attempt. Earlier starts lose their points
    from the first step of this one on, or from the step ``purge`` on if that is less.
    """

    name: str
    step: int | None
    at: int
    value: float
    restart: int = 0
    purge: int | None = None


@dataclass(frozen=True)
class ReadReports:
    """The values of whole lines, and how many bytes these took."""

    values: list[Value]
    taken: int
    params: dict[str, str] = field(default_factory=dict)
    """The parameters that were said, each with its first value."""


def read_reports(data: bytes, *, full: bool) -> ReadReports:
    """Read whole lines: all, or those before too many starts of the task.

    Args:
        data: What follows the last read in the file.
        full: Whether there may be more than ``data``. A line that is longer than that is skipped.
    """
    end = data.rfind(b"\n") + 1
    if not end and full:
        return ReadReports([], len(data))
    found: list[Value] = []
    params: dict[str, str] = {}
    others: set[tuple[int, str]] = set()
    begin = 0
    for line in data[:end].split(b"\n"):
        if (entry := _entry(line)) is not None:
            for name, value in _params(entry):
                params.setdefault(name, value)
            values = list(_values(entry))
            if values and found and values[0].restart != found[0].restart:
                others.update((one.restart, one.name) for one in values)
            if len(others) > _OTHER_STARTS:
                return ReadReports(found, begin, params)
            found += values
        begin += len(line) + 1
    return ReadReports(found, end, params)


def _entry(line: bytes) -> dict[str, Any] | None:
    """What a line says. One that cannot say anything is not decoded: there may be very many."""
    if len(line) > LONGEST_LINE or not (b'"metrics"' in line or b'"params"' in line):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _params(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    params = entry.get("params")
    if not isinstance(params, dict):
        return
    for name, value in list(params.items())[:MOST_METRICS]:
        if not isinstance(value, str) or len(value) > LONGEST_PARAM or not is_metric_name(name):
            continue
        if is_unicode(name) and is_unicode(value) and "\x00" not in value:
            yield name, value


def _values(entry: dict[str, Any]) -> Iterator[Value]:
    if not isinstance(entry.get("metrics"), dict):
        return
    at, step = _milliseconds(entry.get("time")), entry.get("step")
    restart = entry.get("restart", 0)
    if at is None or not _is_whole(restart, 0, _LARGEST_RESTART):
        return
    if step is not None and not _is_whole(step, -LARGEST_STEP, LARGEST_STEP):
        return
    for name, value in list(entry["metrics"].items())[:MOST_METRICS]:
        if is_metric_name(name) and (number := _number(value)) is not None:
            yield Value(name, step, at, number, min(restart, _COUNTED_RESTARTS))


def is_metric_name(name: str) -> bool:
    """Whether a metric can have this name."""
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _milliseconds(value: Any) -> int | None:
    number = _number(value)
    if number is None or not 0 <= number * 1000 <= LARGEST_TIME:
        return None
    return round(number * 1000)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
