"""Writes tables as Apache Parquet, with the standard library only.

What readers need and no more: one page for each column of a group of rows, values in plain encoding,
pages compressed by gzip, and a footer in Thrift's compact protocol. The format is described at
https://parquet.apache.org/docs/file-format/.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import groupby, islice
from typing import IO, Any

_MAGIC = b"PAR1"
_ROWS_PER_GROUP = 50_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Values from parquet.thrift. The last one tells zlib to write a gzip header (16) with the largest
# window (15).
_OPTIONAL, _PLAIN, _RLE, _GZIP, _GZIP_WINDOW = 1, 0, 3, 2, 31


class ColumnType(Enum):
    """What a column holds: Parquet's physical type, and its converted type if it has one."""

    NUMBER = (5, None)
    WHOLE_NUMBER = (2, None)
    TEXT = (6, 0)
    TIME = (2, 10)
    """Microseconds since 1970, in UTC."""


@dataclass(frozen=True)
class Column:
    """A column. Any value may be missing: ``None``."""

    name: str
    type: ColumnType


@dataclass
class _Struct:
    """A structure of Thrift: fields by their ids, in ascending order. ``None`` is left out."""

    fields: dict[int, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        out, last = bytearray(), 0
        for id_, value in self.fields.items():
            if value is not None:
                out.append((id_ - last) << 4 | _kind_of(value))
                out += _encode(value)
                last = id_
        return bytes(out) + b"\0"


class _Long(int):
    """A whole number of 64 bits; others have 32."""


def write_parquet(
    target: IO[bytes], columns: Sequence[Column], rows: Iterable[Sequence[Any]]
) -> int:
    """Write rows, with the values of one in the order of the columns. Returns how many there were.

    Holds the rows of one group in memory, not all.

    Raises:
        OSError: They cannot be written.
    """
    target.write(_MAGIC)
    position, count = len(_MAGIC), 0
    groups = []
    rows = iter(rows)
    while part := list(islice(rows, _ROWS_PER_GROUP)):
        begin, chunks = position, []
        for at, column in enumerate(columns):
            page, described = _column_chunk(column, [row[at] for row in part], position)
            target.write(page)
            position += len(page)
            chunks.append(described)
        groups.append(_Struct({1: chunks, 2: _Long(position - begin), 3: _Long(len(part))}))
        count += len(part)
    footer = _Struct(
        {1: 1, 2: _schema(columns), 3: _Long(count), 4: groups, 6: "Cloud ML"}
    ).encode()
    target.write(footer + struct.pack("<I", len(footer)) + _MAGIC)
    return count


def _schema(columns: Sequence[Column]) -> list[_Struct]:
    root = _Struct({4: "schema", 5: len(columns)})
    return [root, *(_schema_element(column) for column in columns)]


def _schema_element(column: Column) -> _Struct:
    physical, converted = column.type.value
    return _Struct({1: physical, 3: _OPTIONAL, 4: column.name, 6: converted})


def _column_chunk(column: Column, values: Sequence[Any], position: int) -> tuple[bytes, _Struct]:
    """The bytes of a column of a group of rows, and what the footer says of it."""
    levels = b"".join(_levels(values))
    there = [value for value in values if value is not None]
    content = struct.pack("<I", len(levels)) + levels + _plain(column.type, there)
    packer = zlib.compressobj(wbits=_GZIP_WINDOW)
    packed = packer.compress(content) + packer.flush()
    page = _Struct({1: len(values), 2: _PLAIN, 3: _RLE, 4: _RLE})
    header = _Struct({1: 0, 2: len(content), 3: len(packed), 5: page}).encode()
    whole = _Struct(
        {
            1: column.type.value[0],
            2: [_PLAIN, _RLE],
            3: [column.name],
            4: _GZIP,
            5: _Long(len(values)),
            6: _Long(len(header) + len(content)),
            7: _Long(len(header) + len(packed)),
            9: _Long(position),
        }
    )
    return header + packed, _Struct({2: _Long(position), 3: whole})


def _levels(values: Sequence[Any]) -> Iterator[bytes]:
    """Which values are there: runs of equal levels, as the hybrid of RLE and bit packing has it."""
    for missing, run in groupby(values, key=lambda value: value is None):
        # A lowest bit of 0 means an RLE run, 1 would mean bit-packed values.
        yield _varint(sum(1 for _ in run) << 1) + (b"\0" if missing else b"\1")


def _plain(type_: ColumnType, values: Sequence[Any]) -> bytes:
    if type_ is ColumnType.NUMBER:
        return struct.pack(f"<{len(values)}d", *values)
    if type_ is ColumnType.WHOLE_NUMBER:
        return struct.pack(f"<{len(values)}q", *values)
    if type_ is ColumnType.TIME:
        moments = [(value - _EPOCH) // timedelta(microseconds=1) for value in values]
        return struct.pack(f"<{len(values)}q", *moments)
    texts = [str(value).encode("utf-8", "replace") for value in values]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def _kind_of(value: Any) -> int:
    """The compact protocol's number of a type."""
    if isinstance(value, _Struct):
        return 12
    if isinstance(value, list):
        return 9
    if isinstance(value, str):
        return 8
    return 6 if isinstance(value, _Long) else 5


def _encode(value: Any) -> bytes:
    if isinstance(value, _Struct):
        return value.encode()
    if isinstance(value, list):
        kind = _kind_of(value[0]) if value else 12
        size = len(value)
        head = bytes([size << 4 | kind]) if size < 15 else bytes([0xF0 | kind]) + _varint(size)
        return head + b"".join(_encode(each) for each in value)
    if isinstance(value, str):
        text = value.encode("utf-8", "replace")
        return _varint(len(text)) + text
    return _varint((value << 1) ^ (value >> 63))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
