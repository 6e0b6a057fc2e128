"""Time is a parameter: whoever needs it is handed a clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]
"""Returns the time, with an offset."""


def system_clock() -> datetime:
    """The machine's time."""
    return datetime.now(UTC)
