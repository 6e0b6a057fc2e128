"""Tags and kinds in records that are too large to be read, such as those of images.

Only the heads of their fields are read; the contents between these are skipped. So their checksum is
not looked at: it would take all bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cloud_ml.tracking.events import (
    KIND_OF_FIELD,
    LARGEST_STEP,
    LONGEST_TAG,
    METADATA,
    MOST_VALUES,
    NOTHING,
    STEP,
    SUMMARY,
    TAG,
    TENSOR,
    VALUE,
    WALL_TIME,
    Event,
    milliseconds_at,
    plugin_kind,
    tag_of,
)
from cloud_ml.tracking.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    NotAMessage,
    to_signed,
    varint,
)
from cloud_ml.tracking.summary_kinds import UNKNOWN

ReadAt = Callable[[int, int], bytes]
"""Bytes of a file: at most so many from a place on."""
_WINDOW = 1024
_MOST_WINDOWS = 64
"""Windows that are read of one record: its heads take no more than a record that is read whole."""
_SMALLEST_TENSOR = 64
"""One that does not say what it is and is not larger may be a scalar."""


class _Exhausted(Exception):
    """More windows are needed than are read of one record."""


class _Record:
    """The bytes of a record, of which windows are read."""

    def __init__(self, read: ReadAt) -> None:
        self._read = read
        self._begin, self._window = 0, memoryview(b"")
        self._left = _MOST_WINDOWS

    def bytes(self, at: int, size: int) -> memoryview:
        """At most ``size`` bytes from a place on, which is no more than a window has."""
        if not self._begin <= at <= at + size <= self._begin + len(self._window):
            if not self._left:
                raise _Exhausted
            self._left -= 1
            self._begin, self._window = at, memoryview(self._read(at, max(size, _WINDOW)))
        found = self._window[at - self._begin : at - self._begin + size]
        if len(found) < size:
            raise NotAMessage("the file was cut meanwhile")
        return found

    def fields(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Number, wire type, begin and end of each field between two places."""
        while at < end:
            key, at = self.number(at, end)
            kind = key & 7
            if kind == VARINT:
                stop = self.number(at, end)[1]
            elif kind == BYTES:
                size, at = self.number(at, end)
                stop = at + size
            elif kind in (FIXED64, FIXED32):
                stop = at + (8 if kind == FIXED64 else 4)
            else:
                raise NotAMessage(f"wire type {kind}")
            if stop > end:
                raise NotAMessage("a field is cut short")
            yield key >> 3, kind, at, stop
            at = stop

    def number(self, at: int, end: int) -> tuple[int, int]:
        """The number of variable length at a place, and the place behind it."""
        value, size = varint(self.bytes(at, min(10, end - at)), 0)
        return value, at + size


def read_large_event(read: ReadAt, begin: int, size: int) -> Event:
    """The event of a large record, without scalars; an empty one of a record that is no event.

    Args:
        read: Reads the file.
        begin: Where the event begins.
        size: Of the event.
    """
    record = _Record(read)
    step = at = 0
    others: list[tuple[str, str]] = []
    try:
        for number, kind, start, stop in record.fields(begin, begin + size):
            if number == WALL_TIME and kind == FIXED64:
                at = milliseconds_at(record.bytes(start, 8))
            elif number == STEP and kind == VARINT:
                step = to_signed(record.number(start, stop)[0])
            elif number == SUMMARY and kind == BYTES:
                _add_others(record, start, stop, others)
    except _Exhausted:
        pass
    except NotAMessage:
        return NOTHING
    return Event(step, at, (), others=others) if abs(step) <= LARGEST_STEP else NOTHING


def _add_others(record: _Record, begin: int, end: int, others: list[tuple[str, str]]) -> None:
    for number, kind, start, stop in record.fields(begin, end):
        if number == VALUE and kind == BYTES and len(others) < MOST_VALUES:
            tag, what = _value(record, start, stop)
            if tag and what is not None:
                others.append((tag, what))


def _value(record: _Record, begin: int, end: int) -> tuple[str, str | None]:
    """Tag and kind of a value; no kind if it is a scalar."""
    tag, kind, plugin, tensor = "", None, UNKNOWN, -1
    for number, form, start, stop in record.fields(begin, end):
        if form != BYTES:
            continue
        size = stop - start
        if number == TAG:
            tag = tag_of(record.bytes(start, size)) if size <= 4 * LONGEST_TAG else ""
        elif number == TENSOR:
            tensor = size
        elif number == METADATA and size <= _WINDOW:
            plugin = plugin_kind(record.bytes(start, size))
        else:
            kind = KIND_OF_FIELD.get(number, kind)
    if kind is None and (tensor > _SMALLEST_TENSOR or (tensor >= 0 and plugin != UNKNOWN)):
        kind = plugin
    return tag, kind
