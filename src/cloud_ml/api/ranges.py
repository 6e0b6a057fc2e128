"""The part of an object that a ``Range`` header asks for. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


@dataclass(frozen=True)
class Span:
    """Bytes ``start`` to ``end``, both included."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """How many bytes these are."""
        return self.end - self.start + 1


def applies(if_range: str | None, etag: str) -> bool:
    """Whether ``Range`` counts beside the header ``If-Range``: only for the very version that it
    names.

    RFC 9110, 13.1.5: a strong validator must match. A weak ETag never does, nor does a date: what
    was written twice within a second has one ``Last-Modified``.
    """
    return if_range is None or if_range.strip() == f'"{etag}"'


class Unsatisfiable(ValueError):
    """The range lies outside of the object."""

    def __init__(self, range_header: str, size: int) -> None:
        super().__init__(f"{range_header} lies outside of {size} bytes")
        self.range_header = range_header
        self.size = size


def parse(header: str | None, size: int) -> Span | None:
    """The span of an object of ``size`` bytes; ``None`` means all of it.

    As RFC 9110 has it, a header that is malformed or names several ranges is ignored.

    Raises:
        Unsatisfiable: The range lies outside of the object.
    """
    match = _ONE_RANGE.fullmatch(header.strip()) if header else None
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        last = int(match[2])
        # RFC 9110, section 14.1.2: the last 0 bytes cannot be had, and of nothing there is no
        # range.
        if last == 0 or size == 0:
            raise Unsatisfiable(match[0], size)
        return Span(max(0, size - last), size - 1)
    start = int(match[1])
    end = int(match[2]) if match[2] else size - 1
    # Section 14.1.1: such a range is invalid, so the header is ignored.
    if match[2] and end < start:
        return None
    if start >= size:
        raise Unsatisfiable(match[0], size)
    return Span(start, min(end, size - 1))
