"""Patterns of metrics in logs, as a job names them."""

from __future__ import annotations

from typing import Any

from cloud_ml.models import common

READY_PATTERNS = ("epoch", "json", "keras", "lightgbm", "lightning", "xgboost")
"""Patterns of metrics in logs that are known by name."""
METRIC_PREFIX = "metric:"
"""``metric:loss`` finds ``loss: 0.25``, ``loss=0.25`` and ``"loss": 0.25``."""
MOST_PATTERNS = 20
LONGEST_PATTERN = 1000


def pattern_of_metric(name: str) -> str:
    """The pattern that finds one metric of this name where code prints it."""
    return f"{METRIC_PREFIX}{name}"


def is_ready_pattern(pattern: str) -> bool:
    """Whether a pattern is known by name: the server needs not compile it to know that it is one."""
    name = pattern.removeprefix(METRIC_PREFIX)
    return pattern in READY_PATTERNS or (name not in (pattern, "") and name.isprintable())


def check_metric_patterns(field: str, patterns: Any) -> None:
    """Refuse what is no list of words. Whether a pattern can be compiled is found by the server.

    Raises:
        InvalidRequest: Names the field and what is allowed.
    """
    if not isinstance(patterns, list) or len(patterns) > MOST_PATTERNS:
        raise common.refuse(field, patterns, f"a list of at most {MOST_PATTERNS} patterns")
    for at, pattern in enumerate(patterns):
        common.check_text(f"{field}.{at}", pattern, limit=LONGEST_PATTERN)
