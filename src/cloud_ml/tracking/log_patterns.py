"""Metrics in logs: patterns of users, and ready ones for what frameworks print.

Patterns are RE2, whose time is linear in the line, whatever pattern and line are. Each match in a
line gives a point: the group ``value``, under the name that the group ``name`` has matched. Any
other group with a name is a metric of that name. The group ``step`` is the step of the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import re2

from cloud_ml.tracking.events import LARGEST_STEP, LONGEST_TAG
from cloud_ml.tracking.metric_lines import (
    END_OF_NUMBER,
    END_OF_STEP,
    LONGEST_LINE,
    NUMBER,
    STEP,
    metric_pattern,
    shown_line,
)

MOST_PATTERNS = 20
LONGEST_PATTERN = 1000
MOST_POINTS = 20_000
"""One call gives so many, and those of one line."""
MOST_SERIES = 500
"""Likewise."""
MOST_LINES = 20_000
"""Lines that one call looks at, so that it takes a second at most."""
_MOST_MATCHES = 100
"""In one line."""
_MEMORY = 1 << 20
"""Of one pattern."""
_NUMBER_ALONE = re.compile(rf"{NUMBER}\Z".encode())

LinePoint = tuple[str, int | None, float]
"""A metric, its step if the line has one, and its value."""


class PatternRefused(ValueError):
    """No pattern of this program; the message says why."""


class LinePattern(Protocol):
    """Finds points in lines."""

    def points(self, line: bytes, steps: dict[str, int]) -> Iterator[LinePoint]:
        """Those of one line. ``steps`` is what earlier lines of the log have told of steps."""


@dataclass(frozen=True)
class _Pattern:
    """A compiled pattern over bytes, and the numbers of its groups."""

    regex: Any
    groups: Mapping[str, int]

    def first(self, line: bytes) -> Mapping[str, bytes] | None:
        """The groups of the first match in a line."""
        found = self.regex.search(line)
        return None if not found else self._groups_of(found)

    def all(self, line: bytes) -> Iterator[Mapping[str, bytes]]:
        """The groups of each match, of a bounded number."""
        return map(self._groups_of, islice(self.regex.finditer(line), _MOST_MATCHES))

    def pairs(self, line: bytes) -> Iterator[Mapping[str, bytes]]:
        """The groups of names and values, of a bounded number. What ends a value may stand before the
        next name, too.
        """
        at = 0
        for _ in range(_MOST_MATCHES):
            found = self.regex.search(line, at)
            if not found:
                return
            yield self._groups_of(found)
            at = found.end(self.groups["value"])

    def _groups_of(self, found: Any) -> Mapping[str, bytes]:
        return {name: found.group(at) or b"" for name, at in self.groups.items()}


@dataclass(frozen=True)
class _Pairs:
    """Lines with names and values.

    Attributes:
        name: Of this pattern.
        line: Which lines these are; its group ``step`` is their step.
        pair: A name and its value.
        epoch: Lines that tell the step of those that follow.
        left_out: Names that are no metrics.
    """

    name: str
    line: _Pattern
    pair: _Pattern
    epoch: _Pattern | None = None
    left_out: frozenset[bytes] = frozenset()

    def points(self, line: bytes, steps: dict[str, int]) -> Iterator[LinePoint]:
        """See ``LinePattern``."""
        if self.epoch is not None and (match := self.epoch.first(line)):
            steps[self.name] = int(match["step"])
        found = self.line.first(line)
        if found is None:
            return
        step = int(found["step"]) if found.get("step") else steps.get(self.name)
        for pair in self.pair.pairs(line):
            if pair["name"].lower() not in self.left_out:
                yield _text(pair["name"]).replace("'s ", "/"), step, float(pair["value"])


class _JsonLines:
    """Lines that are JSON objects: their numbers."""

    _STEPS = ("step", "global_step", "iteration", "epoch")
    _TIMES = frozenset({"time", "timestamp", "ts", "wall_time"})

    def points(self, line: bytes, steps: dict[str, int]) -> Iterator[LinePoint]:
        """See ``LinePattern``."""
        del steps
        if not line.lstrip().startswith(b"{"):
            return
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return
        numbers = {
            name: value
            for name, value in document.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        key = next((one for one in self._STEPS if isinstance(numbers.get(one), int)), None)
        step = None if key is None else int(numbers[key])
        for name, value in islice(numbers.items(), _MOST_MATCHES):
            if name != key and name not in self._TIMES:
                try:
                    yield name, step, float(value)
                except OverflowError:
                    continue


@dataclass(frozen=True)
class _Metric:
    """One metric wherever code prints it: ``loss: 0.25``, ``loss=0.25``, ``"loss": 0.25``."""

    name: str
    pair: _Pattern
    step: _Pattern

    def points(self, line: bytes, steps: dict[str, int]) -> Iterator[LinePoint]:
        """See ``LinePattern``."""
        del steps
        values = [float(pair["value"]) for pair in self.pair.pairs(line)]
        if values:
            found = self.step.first(line)
            yield self.name, int(found["step"]) if found else None, values[-1]


@dataclass(frozen=True)
class _Own:
    """A pattern of a user."""

    pattern: _Pattern
    metrics: Sequence[str] = ()
    """Groups that are metrics of their names."""

    def points(self, line: bytes, steps: dict[str, int]) -> Iterator[LinePoint]:
        """See ``LinePattern``."""
        del steps
        for match in self.pattern.all(line):
            step = _whole(match.get("step"))
            if (number := _number(match.get("value"))) is not None:
                yield _text(match["name"]) if "name" in match else "value", step, number
            for name in self.metrics:
                if (number := _number(match[name])) is not None:
                    yield name, step, number


def _compile_pattern(pattern: str) -> _Pattern:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    found = re2.compile(pattern.encode(), options)
    return _Pattern(found, {_text(bytes(name)): at for name, at in found.groupindex.items()})


def _ready(name: str) -> LinePattern:
    words = rf"(?P<name>[A-Za-z_][\w./@-]*)\s*[:=]\s*(?P<value>{NUMBER}){END_OF_NUMBER}"
    if name == "json":
        return _JsonLines()
    if name == "keras":
        return _Pairs(
            name,
            line=_compile_pattern(r"^\s*\d+/\d+\s.*(?:/step|/epoch|/sample|s)\s+- "),
            pair=_compile_pattern(rf"- (?P<name>[A-Za-z_][\w./]*): (?P<value>{NUMBER})(?:\s|$)"),
            epoch=_compile_pattern(r"^\s*Epoch (?P<step>\d{1,15})/\d+"),
        )
    if name == "lightning":
        return _Pairs(
            name,
            line=_compile_pattern(r"^Epoch (?P<step>\d{1,15}):\s+100%"),
            pair=_compile_pattern(
                rf"[\s,](?P<name>[A-Za-z_][\w./]*)=(?P<value>{NUMBER})(?:\]|,\s|,?$)"
            ),
            left_out=frozenset({b"v_num"}),
        )
    if name == "xgboost":
        return _Pairs(
            name,
            line=_compile_pattern(r"^(?:\[[\d:]+\]\s+)?\[(?P<step>\d{1,15})\]\s"),
            pair=_compile_pattern(
                rf"\s(?P<name>[A-Za-z_][\w.@/-]*):(?P<value>{NUMBER})(?:[\s+]|$)"
            ),
        )
    if name == "lightgbm":
        return _Pairs(
            name,
            line=_compile_pattern(r"^\[(?P<step>\d{1,15})\]\s"),
            pair=_compile_pattern(rf"(?P<name>\w+'s [\w@]+): (?P<value>{NUMBER})(?:\s|$)"),
        )
    if name == "epoch":
        return _Pairs(
            name,
            line=_compile_pattern(rf"(?i)\bepoch\s*[:=]?\s*(?P<step>\d{{1,15}}){END_OF_STEP}"),
            pair=_compile_pattern(words),
            left_out=frozenset({b"epoch"}),
        )
    raise KeyError(name)


def _metric(name: str) -> LinePattern:
    if not 0 < len(name) <= LONGEST_TAG or not name.isprintable():
        raise PatternRefused(f"{METRIC_PREFIX} is followed by the name of a metric")
    return _Metric(name, pair=_compile_pattern(metric_pattern(name)), step=_compile_pattern(STEP))


METRIC_PREFIX = "metric:"
"""``metric:loss`` finds one metric wherever code prints it."""
READY = ("epoch", "json", "keras", "lightgbm", "lightning", "xgboost")
"""Patterns that are known by name."""


def compile_pattern(text: str) -> LinePattern:
    """A ready pattern by its name, else one of a user.

    Raises:
        PatternRefused: It is none.
    """
    if text in READY:
        return _ready(text)
    if text.startswith(METRIC_PREFIX) and len(text) <= LONGEST_PATTERN:
        return _metric(text.removeprefix(METRIC_PREFIX))
    if not 0 < len(text) <= LONGEST_PATTERN:
        raise PatternRefused(f"it has {len(text)} characters; allowed are 1 to {LONGEST_PATTERN}")
    try:
        pattern = _compile_pattern(text)
    except re2.error as error:
        raise PatternRefused(f"it is no RE2 pattern: {reason_of(error)}") from None
    names = set(pattern.groups)
    if "name" in names and "value" not in names:
        raise PatternRefused("it has a group name and no group value")
    groups = sorted(names - {"name", "value", "step"})
    if not groups and "value" not in names:
        raise PatternRefused(
            "it has no group for a value, such as (?P<value>\\S+), and is no ready pattern "
            f"({', '.join(READY)})"
        )
    return _Own(pattern, groups)


def reason_of(error: Exception) -> str:
    """What RE2 says of a pattern that is none."""
    message = error.args[0] if error.args else str(error)
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)


@dataclass(frozen=True)
class ReadLines:
    """The points of whole lines, how many bytes these take, and what they tell of steps."""

    points: list[LinePoint]
    taken: int
    steps: Mapping[str, int]


def read_lines(
    data: bytes,
    patterns: Sequence[LinePattern],
    steps: Mapping[str, int],
    *,
    more: bool = False,
    final: bool = False,
) -> ReadLines:
    """Read whole lines, up to the bounds of one call.

    Args:
        data: What follows the last read in the log.
        patterns: Where points are.
        steps: What the call before has given.
        more: Whether there may be more than ``data``. A line that is longer is skipped.
        final: Whether nothing follows: then the last line is whole without a line feed.
    """
    found: list[LinePoint] = []
    known, at, lines = dict(steps), 0, 0
    series: set[str] = set()
    end = len(data) if final else data.rfind(b"\n") + 1
    if not end and more:
        return ReadLines([], len(data), known)
    while at < end and len(found) < MOST_POINTS and lines < MOST_LINES:
        lines += 1
        stop = data.find(b"\n", at)
        stop = end if stop < 0 else stop
        if 0 < stop - at <= LONGEST_LINE:
            next_steps = dict(known)
            points = _points_of(data[at:stop], patterns, next_steps)
            new = {name for name, _, _ in points} - series
            if found and len(series) + len(new) > MOST_SERIES:
                break
            series |= new
            found += points
            known = next_steps
        at = min(stop + 1, end)
    return ReadLines(found, at, known)


def _points_of(
    line: bytes, patterns: Sequence[LinePattern], steps: dict[str, int]
) -> list[LinePoint]:
    """Of a progress bar that was drawn several times, the last one."""
    line = shown_line(line)
    found: dict[tuple[str, int | None], float] = {}
    for pattern in patterns:
        for name, step, value in pattern.points(line, steps):
            if step is not None and abs(step) > LARGEST_STEP:
                continue
            if 0 < len(name) <= LONGEST_TAG and name.isprintable():
                found.setdefault((name, step), value)
    return [(name, step, value) for (name, step), value in found.items()]


_WHOLE = re.compile(rb"[+-]?[0-9]+")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace").strip()


def _whole(content: bytes | None) -> int | None:
    """A step that was matched."""
    if content and len(content) <= 19 and _WHOLE.fullmatch(content.strip()):
        return int(content)
    return None


def _number(content: bytes | None) -> float | None:
    """A value that was matched; one that is no number is none."""
    content = (content or b"").strip().rstrip(b",;")
    if len(content) <= 100 and _NUMBER_ALONE.match(content):
        return float(content)
    return None
