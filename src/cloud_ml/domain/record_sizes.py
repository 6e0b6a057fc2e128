"""How much of the database a record takes: units, and tags by which records of a size are counted.

The number of an organisation's records is bounded, and a request may be a megabyte. So a large
record counts as many small ones. Sizes are rounded up to a power of two: a few counts of an index
give the sum.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

UNIT_BYTES = 16 * 1024
CLASSES = tuple(2**power for power in range(1, 13))
"""Units of large records; a smaller one has one unit."""
_ESCAPED = 6
"""Bytes of a character that JSON escapes."""
_ITEM = 4


def units_of(spec: object) -> int:
    """The units of a spec: 1 for nearly all."""
    units = -(-bytes_of(spec) // UNIT_BYTES)
    return 1 if units <= 1 else next((each for each in CLASSES if each >= units), CLASSES[-1])


def size_tag(units: int) -> str:
    """The tag of records of so many units."""
    return f"large:{units}"


def size_tags(spec: object) -> Collection[str]:
    """The tag of a large record; none for others."""
    units = units_of(spec)
    return () if units == 1 else (size_tag(units),)


def bytes_of(value: Any) -> int:
    """About how many bytes the JSON of a value takes."""
    if value is None or value is False or value is True:  # most fields of a spec
        return _ITEM
    if isinstance(value, str):
        return len(value) * (1 if value.isascii() and value.isprintable() else _ESCAPED) + _ITEM
    if isinstance(value, Mapping):
        return sum(map(bytes_of, value)) + sum(map(bytes_of, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return sum(map(bytes_of, value))
    return sum(map(bytes_of, vars(value).values())) if hasattr(value, "__dict__") else _ITEM
