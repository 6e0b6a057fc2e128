"""Messages of Protocol Buffers, read field by field without their schema."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class NotAMessage(ValueError):
    """These bytes are no message."""


def fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field: a number where it is a varint, else the bytes.

    Raises:
        NotAMessage: A field is cut short or of no known type.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise NotAMessage(f"wire type {kind}")
        if size > end - at:
            raise NotAMessage("a field is cut short")
        yield number, kind, data[at : at + size]
        at += size


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number of variable length at a place, and the place behind it.

    Raises:
        NotAMessage: It is cut short or too long.
    """
    found = shift = 0
    for place in range(at, min(at + _LONGEST_VARINT, len(data))):
        byte = data[place]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & 0xFFFFFFFFFFFFFFFF, place + 1
        shift += 7
    raise NotAMessage("a number is cut short or too long")


def to_signed(value: int) -> int:
    """A varint as a number of 64 bits with a sign."""
    return value - (1 << 64) if value >> 63 else value
