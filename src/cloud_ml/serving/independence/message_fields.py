"""The fields of protocol buffers in files of models, read where they lie."""

from collections.abc import Iterator
from typing import Any

from cloud_ml.serving.codecs import wire


def messages(data: Any, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields that are texts or messages: number, and where the content begins and ends."""
    for number, kind, at, stop in wire.fields(data, start, end):
        if kind == wire.DELIMITED:
            yield number, at, stop


def varints(data: Any, kind: int, start: int, end: int) -> Iterator[int]:
    """The signed numbers of a repeated field, one by one or packed."""
    while start < end:
        value, start = wire.read_varint(data, start, end)
        yield to_signed(value)
        if kind == wire.VARINT:
            return


def to_signed(value: int) -> int:
    """A number of 64 bits, with its sign."""
    return value - (1 << 64) if value >> 63 else value


def text(data: Any, start: int, end: int) -> str:
    """A text; one that is not UTF-8 raises ``ValueError``."""
    return bytes(data[start:end]).decode()
