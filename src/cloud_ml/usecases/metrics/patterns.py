"""Whether patterns of metrics in logs are such. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cloud_ml.errors import Unavailable
from cloud_ml.models import common
from cloud_ml.models.metric_patterns import READY_PATTERNS
from cloud_ml.usecases.metrics.parsing import NoParser, PointParser, UnreadableFile

PatternCheck = Callable[[Sequence[str]], None]


def any_patterns(patterns: Sequence[str]) -> None:
    """Refuses none."""
    del patterns


def pattern_check(parser: PointParser) -> PatternCheck:
    """A check that has a process without rights compile them.

    It raises ``InvalidRequest``, which names the pattern and what is wrong with it, and
    ``Unavailable`` if there is no such process.
    """

    def check(patterns: Sequence[str]) -> None:
        own = [pattern for pattern in patterns if pattern not in READY_PATTERNS]
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
