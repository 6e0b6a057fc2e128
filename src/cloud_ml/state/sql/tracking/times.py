"""Milliseconds of a filter as a point in time."""

from __future__ import annotations

from datetime import UTC, datetime

_LAST = datetime(9999, 12, 31, tzinfo=UTC)
_FIRST = datetime(1, 1, 2, tzinfo=UTC)


def moment_of(milliseconds: float) -> datetime:
    """The point in time, or the end of what a calendar has."""
    seconds = milliseconds / 1000
    if seconds >= _LAST.timestamp():
        return _LAST
    if seconds <= _FIRST.timestamp():
        return _FIRST
    return datetime.fromtimestamp(seconds, UTC)
