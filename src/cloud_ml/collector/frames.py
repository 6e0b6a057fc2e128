"""What goes between the server and the collector: a document, then numbers in columns.

Neither side believes the other: lengths are bounded before anything is read, and what was read is
checked.
"""

from __future__ import annotations

import json
import socket
import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

LARGEST_REQUEST = 64 * 1024
LARGEST_ANSWER = 4 * 1024 * 1024
MOST_POINTS = 30_000
NO_STEP = -(2**63)
_LENGTHS = struct.Struct("<II")
_COLUMNS = "Hqqd"
"""The number of the name, the step, the time and the value of each point."""
_POINT_BYTES = sum(array(kind).itemsize for kind in _COLUMNS)

Row = tuple[int, int, int, float]


class BadFrame(ValueError):
    """The other side said something that it never says."""


def pack(document: Mapping[str, Any], rows: Sequence[Row] = ()) -> bytes:
    """A frame."""
    head = json.dumps(document, separators=(",", ":")).encode()
    columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
    body = b"".join(
        array(kind, column).tobytes() for kind, column in zip(_COLUMNS, columns, strict=True)
    )
    return _LENGTHS.pack(len(head), len(rows)) + head + body


def receive(connection: socket.socket, first: bytes, most: int) -> tuple[dict[str, Any], list[Row]]:
    """Read a frame whose ``first`` bytes were read before.

    Raises:
        BadFrame: It is too large, or none.
        EOFError: The other side has gone.
        OSError: It cannot be read, or not in time.
    """
    data = bytearray(first)
    _fill(connection, data, _LENGTHS.size)
    head_bytes, count = _LENGTHS.unpack_from(data)
    if count > MOST_POINTS or head_bytes > most:
        raise BadFrame(f"a frame of {head_bytes} bytes and {count} points")
    whole = _LENGTHS.size + head_bytes + count * _POINT_BYTES
    if whole > most:
        raise BadFrame(f"a frame of {whole} bytes; allowed are {most}")
    _fill(connection, data, whole)
    if len(data) != whole:
        raise BadFrame("bytes follow a frame")
    try:
        document = json.loads(bytes(data[_LENGTHS.size : _LENGTHS.size + head_bytes]))
    except (ValueError, RecursionError) as error:
        raise BadFrame("a frame has no document") from error
    if not isinstance(document, dict):
        raise BadFrame("the document of a frame is no object")
    return document, _rows(bytes(data[_LENGTHS.size + head_bytes :]), count)


def _rows(body: bytes, count: int) -> list[Row]:
    columns, at = [], 0
    for kind in _COLUMNS:
        column = array(kind)
        size = count * column.itemsize
        column.frombytes(body[at : at + size])
        columns.append(column)
        at += size
    return list(zip(*columns, strict=True))


def _fill(connection: socket.socket, data: bytearray, size: int) -> None:
    while len(data) < size:
        more = connection.recv(min(1 << 18, size - len(data)))
        if not more:
            raise EOFError("the other side has gone")
        data += more
