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
_SHORT = frozenset({bool, int, float})


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
    """About how many bytes the JSON of a value takes.

    Without recursion: a spec has more than a hundred fields, and each request has its spec measured.
    """
    total, rest = 0, [value]
    while rest:
        item = rest.pop()
        kind = type(item)
        if item is None or kind in _SHORT:  # most fields of a spec
            total += _ITEM
        elif isinstance(item, str):
            escaped = not (item.isascii() and item.isprintable())
            total += len(item) * (_ESCAPED if escaped else 1) + _ITEM
        elif isinstance(item, list | tuple | set | frozenset):
            rest.extend(item)
        elif kind is dict or isinstance(item, Mapping):
            rest.extend(item)
            rest.extend(item.values())
        elif hasattr(item, "__dict__"):
            rest.extend(vars(item).values())
        else:
            total += _ITEM
    return total
