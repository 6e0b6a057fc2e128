"""Whether patterns for logs are such: those of metrics, and those of restart rules. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cloud_ml.errors import Unavailable
from cloud_ml.models import common
from cloud_ml.models.jobs.metric_patterns import is_ready_pattern
from cloud_ml.usecases.metrics.parsing import NoParser, PointParser, UnreadableFile

PatternCheck = Callable[[Sequence[str]], None]
SearchCheck = Callable[[Mapping[str, str]], None]
"""Takes patterns by the names of their fields."""


def any_patterns(patterns: Sequence[str]) -> None:
    """Refuses none."""
    del patterns


def any_searches(patterns: Mapping[str, str]) -> None:
    """Refuses none."""
    del patterns


def search_check(parser: PointParser, refusal: Callable[[], str]) -> SearchCheck:
    """A check of patterns that are looked for in the log of a task that has failed.

    It raises as that of ``pattern_check``. ``refusal`` says why no task can be looked at; nothing if
    all can.
    """

    def check(patterns: Mapping[str, str]) -> None:
        if not patterns:
            return
        first = next(iter(patterns))
        if why := refusal():
            raise common.refuse(first, patterns[first], f"no pattern, but a text in log: {why}")
        try:
            problem = parser.check_patterns(list(patterns.values()), search=True)
        except NoParser as error:
            raise Unavailable(f"patterns cannot be checked: {error}") from error
        except UnreadableFile as error:
            raise common.refuse(first, patterns[first], f"another pattern: {error}") from error
        if problem is not None:
            field = next(name for name, text in patterns.items() if text == problem.pattern)
            raise common.refuse(field, problem.pattern, f"an RE2 pattern ({problem.reason})")

    return check


def pattern_check(parser: PointParser) -> PatternCheck:
    """A check that has a process without rights compile them.

    It raises ``InvalidRequest``, which names the pattern and what is wrong with it, and
    ``Unavailable`` if there is no such process.
    """

    def check(patterns: Sequence[str]) -> None:
        own = [pattern for pattern in patterns if not is_ready_pattern(pattern)]
        if not own:
            return
        try:
            problem = parser.check_patterns(own)
        except NoParser as error:
            raise Unavailable(f"patterns cannot be checked: {error}") from error
        except UnreadableFile as error:
            raise common.refuse("metric_patterns", own[0], f"another pattern: {error}") from error
        if problem is not None:
            raise common.refuse(
                f"metric_patterns.{list(patterns).index(problem.pattern)}",
                problem.pattern,
                f"an RE2 pattern with a named group for a value ({problem.reason})",
            )

    return check
