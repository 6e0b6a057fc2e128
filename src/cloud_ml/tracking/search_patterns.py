"""Patterns of users that are looked for in a log. They are RE2, whose time is linear in the log,
whatever pattern and log are; and so is the memory of one bounded.
"""

from __future__ import annotations

from typing import Any, Protocol

import re2

from cloud_ml.tracking.log_patterns import LONGEST_PATTERN, PatternRefused, reason_of

_MEMORY = 1 << 20
"""Of one pattern, in bytes."""


class SearchPattern(Protocol):
    """Looks for a pattern."""

    def search(self, text: bytes, /) -> Any:
        """The first match, or ``None``."""


def compile_search(text: str) -> SearchPattern:
    """A pattern whose ``^`` and ``$`` are the ends of a line.

    Raises:
        PatternRefused: It is none.
    """
    if not 0 < len(text) <= LONGEST_PATTERN:
        raise PatternRefused(f"it has {len(text)} characters; allowed are 1 to {LONGEST_PATTERN}")
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        found: SearchPattern = re2.compile(f"(?m){text}".encode(), options)
    except re2.error as error:
        raise PatternRefused(f"it is no RE2 pattern: {reason_of(error)}") from None
    except UnicodeEncodeError:
        raise PatternRefused("it is no text") from None
    return found
