"""Patterns of metrics in logs, as a job names them."""

from __future__ import annotations

from typing import Any

from cloud_ml.models import common

READY_PATTERNS = ("epoch", "json", "keras", "lightgbm", "lightning", "xgboost")
"""Patterns of metrics in logs that are known by name."""
MOST_PATTERNS = 20
LONGEST_PATTERN = 1000


def check_metric_patterns(field: str, patterns: Any) -> None:
    """Refuse what is no list of words. Whether a pattern can be compiled is found by the server.

    Raises:
        InvalidRequest: Names the field and what is allowed.
    """
    if not isinstance(patterns, list) or len(patterns) > MOST_PATTERNS:
        raise common.refuse(field, patterns, f"a list of at most {MOST_PATTERNS} patterns")
    for at, pattern in enumerate(patterns):
        common.check_text(f"{field}.{at}", pattern, limit=LONGEST_PATTERN)
