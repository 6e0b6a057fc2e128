"""Protocol buffers by hand, where bytes are looked at or laid out directly:
https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator, Sequence

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):
    """Bytes that are no message."""


def varint(value: int) -> bytes:
    """A number below 2**64, seven bits a byte."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def varints(values: Sequence[int]) -> list[bytes]:
    """The encoding of each number. Negative numbers are sign-extended to 64 bits, as the format
    wants it.
    """
    short = _ONE_BYTE
    return [
        short[value] if 0 <= value < 0x80 else varint(value & 0xFFFFFFFFFFFFFFFF)
        for value in values
    ]


def key(number: int, kind: int) -> bytes:
    """What stands before a field."""
    return varint(number << 3 | kind)


def encode_delimited(number: int, content: bytes) -> bytes:
    """A field of text, bytes, a message or packed numbers."""
    return key(number, DELIMITED) + varint(len(content)) + content


def read_varint(data: bytes | bytearray | memoryview, at: int, end: int) -> tuple[int, int]:
    """The number that begins at ``at``, and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Malformed("a number without end")


def fields(data: bytes | bytearray, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message that lies in ``data[at:end]``: number, kind, where the content
    begins and ends.

    Raises:
        Malformed: for what is no message, or holds groups, which nothing here uses. Readers differ
            in what they make of field numbers beyond their 29 bits, so these are refused.
    """
    while at < end:
        first = at
        tag, at = read_varint(data, at, end)
        if not 8 <= tag < 1 << 32 or at - first > 5:
            raise Malformed("a field without a number, or with one that is too large")
        number, kind = tag >> 3, tag & 7
        start = at
        if kind == DELIMITED:
            size, start = read_varint(data, at, end)
            at = start + size
        elif kind == VARINT:
            _, at = read_varint(data, at, end)
        elif kind == FIXED32:
            at += 4
        elif kind == FIXED64:
            at += 8
        else:
            raise Malformed(f"a field of kind {kind}")
        if at > end:
            raise Malformed("a field that is longer than its message")
        yield number, kind, start, at
