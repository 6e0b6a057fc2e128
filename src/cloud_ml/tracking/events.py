"""Records of event files: ``Event`` of ``tensorflow/core/util/event.proto``.

TensorFlow 1, PyTorch and tensorboardX write scalars as ``simple_value``, TensorFlow 2 as tensors of
one element. Of histograms, images, audio and texts, only the tag and the kind are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cloud_ml.tracking.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    NotAMessage,
    fields,
    to_signed,
    varint,
)
from cloud_ml.tracking.summary_kinds import AUDIO, HISTOGRAM, IMAGE, OTHER, TEXT, UNKNOWN

LARGEST_STEP = 10**18
LARGEST_TIME = 10**15
"""Milliseconds since 1970. Other times count as 0."""
LONGEST_TAG = 250
MOST_VALUES = 1000
"""Of one event. Others are left out."""
_MOST_LAYOUTS, _MOST_TAGS, _LONGEST_KNOWN = 64, 500, 512
"""What is known of events takes 16 MB at most, whatever they are."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_value_at, _time_at = _FLOAT.unpack_from, _DOUBLE.unpack_from

WALL_TIME, STEP, SUMMARY, _SESSION_LOG = 1, 2, 5, 7
_STATUS, _START = 1, 1
VALUE = 1
TAG, _SIMPLE_VALUE, TENSOR, METADATA = 1, 2, 8, 9
KIND_OF_FIELD = {3: HISTOGRAM, 4: IMAGE, 5: HISTOGRAM, 6: AUDIO}
"""By the field of a value that only this kind has."""
_PLUGIN_DATA, _PLUGIN_NAME = 1, 1
_PLUGINS = {b"histograms": HISTOGRAM, b"images": IMAGE, b"audio": AUDIO, b"text": TEXT}
"""The kinds of tensors, by the plugin of TensorBoard that shows them."""
_DTYPE, _SHAPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _INT64S = 1, 2, 4, 5, 6, 7, 10
_PACKED = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
"""The formats of one element, by the data type of its tensor."""


Scalar = tuple[str, int, int, float]
"""A point: its tag, its step, when it was written (milliseconds since 1970), and its value. No class,
since making one would take a tenth of the time that reading takes.
"""


class Event(NamedTuple):
    """``values`` are tags and scalars. ``starts_session``: a program goes on at this step.

    ``others`` are tags and kinds of what is no scalar; see ``summary_kinds``.
    """

    step: int
    at: int
    values: Sequence[tuple[str, float]]
    starts_session: bool = False
    others: Sequence[tuple[str, str]] = ()


NOTHING = Event(0, 0, ())


class _Layout(NamedTuple):
    """How events of one length look: the bytes of the step end at ``rest``, and four bytes at
    ``place`` are the value. ``tags`` are known by what is behind the step without the value.
    """

    rest: int
    place: int
    tags: dict[bytes, str]


class EventDecoder:
    """Decodes events.

    Events of one series differ in their time, step and value only. So the bytes behind the step are
    looked up without those of the value: if they were seen before, so is their meaning.
    """

    def __init__(self) -> None:
        self._layouts: dict[int, _Layout] = {}
        """By the length of the event."""
        self._values: dict[int, _Layout] = {}
        """Of single values, by their length: an event may have many."""

    def decode_usual(self, record: bytes) -> Scalar | None:
        """The scalar of an event that looks like one before; ``None`` of any other."""
        layout = self._layouts.get(len(record))
        if layout is None:
            return None
        rest, place, tags = layout
        tag = tags.get(record[rest:place] + record[place + 4 :])
        # The first bytes are a time and the tag of a step, and the step takes all up to ``rest``.
        if tag is None or record[0] != 0x09 or record[9] != 0x10:
            return None
        # A varint of one to four bytes: 0x80 is set in all of them but the last. The other seven
        # bits of each are put together.
        step = int.from_bytes(record[10:rest], "little")
        if rest == 11:
            if step > 0x7F:
                return None
        elif rest == 12:
            if step & 0x8080 != 0x80:
                return None
            step = step & 0x7F | step >> 1 & 0x3F80
        elif rest == 13:
            if step & 0x808080 != 0x8080:
                return None
            step = step & 0x7F | step >> 1 & 0x3F80 | step >> 2 & 0x1FC000
        else:
            if step & 0x80808080 != 0x808080:
                return None
            step = step & 0x7F | step >> 1 & 0x3F80 | step >> 2 & 0x1FC000 | step >> 3 & 0xFE00000
        at = _time_at(record, 1)[0] * 1000
        value = _value_at(record, place)[0]
        return tag, step, round(at) if 0 <= at <= LARGEST_TIME else 0, value

    def decode(self, record: bytes) -> Event:
        """The scalars of one event; none of one that is no message."""
        try:
            event, place = self._fields(memoryview(record))
        except NotAMessage:
            return NOTHING
        rest = _end_of_step(record)
        usual = place is not None and rest is not None and len(event.values) == 1
        if usual and len(record) <= _LONGEST_KNOWN:
            _learn(self._layouts, record, (rest or 0, place or 0), event.values[0][0])
        return event

    def _fields(self, record: memoryview) -> tuple[Event, int | None]:
        """An event, and where its one value is if nothing else in it matters."""
        found = _Found()
        for number, kind, value in fields(record):
            found.parts.append(number)
            if number == WALL_TIME and kind == FIXED64 and isinstance(value, memoryview):
                found.at = milliseconds_at(value)
            elif number == STEP and kind == VARINT and isinstance(value, int):
                found.step = to_signed(value)
            elif number == SUMMARY and kind == BYTES and isinstance(value, memoryview):
                self._add_values(value, found, record)
            elif number == _SESSION_LOG and kind == BYTES and isinstance(value, memoryview):
                found.starts_session = found.starts_session or _is_start(value)
        if abs(found.step) > LARGEST_STEP:
            return NOTHING, None
        usual = found.parts == [WALL_TIME, STEP, SUMMARY]
        event = Event(found.step, found.at, found.values, found.starts_session, found.others)
        return event, found.place if usual else None

    def _add_values(self, summary: memoryview, found: _Found, record: memoryview) -> None:
        values = 0
        found.place = None
        for number, kind, value in fields(summary):
            if number != VALUE or kind != BYTES or not isinstance(value, memoryview):
                continue
            values += 1
            tag, scalar, place, other = self._value(bytes(value))
            if other is not None and tag and len(found.others) < MOST_VALUES:
                found.others.append((tag, other))
            elif tag and scalar is not None and len(found.values) < MOST_VALUES:
                found.values.append((tag, scalar))
                if place is not None and values == 1:
                    begin = _distance(value, record)
                    found.place = None if begin is None else begin + place
        if values != 1:
            found.place = None

    def _value(self, content: bytes) -> tuple[str, float | None, int | None, str | None]:
        """Tag and scalar of a value, where the four bytes are that are this scalar, and the kind of
        what is none.
        """
        layout = self._values.get(len(content))
        if layout is not None:
            _, place, tags = layout
            tag = tags.get(content[:place] + content[place + 4 :])
            if tag is not None:
                return tag, _value_at(content, place)[0], place, None
        tag, scalar, number, kind = _decoded_value(memoryview(content))
        where = None if number is None else _distance(number, memoryview(content))
        if tag and where is not None and len(content) <= _LONGEST_KNOWN:
            _learn(self._values, content, (0, where), tag)
        return tag, scalar, where, kind


def _learn(layouts: dict[int, _Layout], content: bytes, places: tuple[int, int], tag: str) -> None:
    """Know what looks like this by its tag from now on."""
    rest, place = places
    layout = layouts.get(len(content))
    if layout is None or layout[:2] != places:
        if len(layouts) >= _MOST_LAYOUTS:
            layouts.clear()
        layout = _Layout(rest, place, {})
        layouts[len(content)] = layout
    if len(layout.tags) >= _MOST_TAGS:
        layout.tags.clear()
    layout.tags[content[rest:place] + content[place + 4 :]] = tag


def _end_of_step(record: bytes) -> int | None:
    """Where the bytes of the step end, in an event of a time, a step and a summary; ``None`` if
    there are more than four, or if the event is written in another way.
    """
    if len(record) < 15 or record[0] != 0x09 or record[9] != 0x10:
        return None
    for rest in range(11, 15):
        if record[rest - 1] < 0x80:
            return rest
    return None


class _Found:
    """What was decoded of an event."""

    def __init__(self) -> None:
        self.at = self.step = 0
        self.values: list[tuple[str, float]] = []
        self.others: list[tuple[str, str]] = []
        self.starts_session = False
        self.parts: list[int] = []
        """The numbers of its fields."""
        self.place: int | None = None
        """Where the last value is in the record, if it is a number of four bytes."""


def _is_start(session_log: memoryview) -> bool:
    return any(number == _STATUS and value == _START for number, _, value in fields(session_log))


def milliseconds_at(seconds: memoryview) -> int:
    """Milliseconds since 1970 of a time in an event."""
    at = _DOUBLE.unpack(seconds)[0] * 1000
    return round(at) if 0 <= at <= LARGEST_TIME else 0


def _distance(part: memoryview, whole: memoryview) -> int | None:
    """Where a part is in the whole."""
    at = bytes(whole).find(bytes(part))
    again = bytes(whole).find(bytes(part), at + 1)
    # Where the same bytes are there twice, which of them are the value cannot be told.
    return at if again < 0 else None


def _decoded_value(
    value: memoryview,
) -> tuple[str, float | None, memoryview | None, str | None]:
    """Tag and scalar of a value, the four bytes that are this scalar, and the kind of what is none."""
    tag, scalar, place, kind, plugin = "", None, None, None, UNKNOWN
    scalars = 0
    for inner, form, what in fields(value):
        if isinstance(what, int):
            continue
        if inner == TAG and form == BYTES:
            tag = tag_of(what)
        elif inner == _SIMPLE_VALUE and form == FIXED32:
            scalar, place = _FLOAT.unpack(what)[0], what
            scalars += 1
        elif inner == TENSOR and form == BYTES:
            scalar, place = _element(what)
            scalars += 1
        elif inner == METADATA and form == BYTES:
            plugin = plugin_kind(what)
        elif inner in KIND_OF_FIELD and form == BYTES:
            kind = KIND_OF_FIELD[inner]
    if kind is None and scalars and scalar is None:
        kind = plugin
    return tag, scalar, place if scalars == 1 else None, kind if scalar is None else None


def plugin_kind(metadata: memoryview) -> str:
    """The kind of a tensor, by the plugin that its metadata name."""
    name = b""
    for number, form, data in fields(metadata):
        if number == _PLUGIN_DATA and form == BYTES and isinstance(data, memoryview):
            for inner, kind, what in fields(data):
                if inner == _PLUGIN_NAME and kind == BYTES and isinstance(what, memoryview):
                    name = bytes(what[:64])
    return _PLUGINS.get(name, OTHER if name else UNKNOWN)


def tag_of(content: memoryview) -> str:
    """A tag; empty if it is no name of a metric."""
    if len(content) > 4 * LONGEST_TAG:
        return ""
    tag = str(content, "utf-8", "replace")
    return tag if len(tag) <= LONGEST_TAG and tag.isprintable() else ""


def _element(tensor: memoryview) -> tuple[float | None, memoryview | None]:
    """The value of a tensor of no dimension; ``None`` of any other. And its bytes, if it is a
    number of four.
    """
    dtype, packed, integers = 0, list[memoryview](), list[int]()
    for number, kind, value in fields(tensor):
        if number == _SHAPE and kind == BYTES and isinstance(value, memoryview) and len(value):
            return None, None
        if number == _DTYPE and isinstance(value, int):
            dtype = value
        elif number in (_INTS, _INT64S) and isinstance(value, int):
            integers.append(to_signed(value))
        elif number in (_INTS, _INT64S) and isinstance(value, memoryview):
            integers += _varints(value)
        elif number in (_CONTENT, _FLOATS, _DOUBLES) and isinstance(value, memoryview):
            packed.append(value)
    return _only_number(dtype, packed, integers)


def _only_number(
    dtype: int, packed: Sequence[memoryview], integers: Sequence[int]
) -> tuple[float | None, memoryview | None]:
    """The number of a tensor, if it has one only: it is among its bytes or among its integers."""
    if len(integers) == 1 and not packed:
        return float(integers[0]), None
    form = _PACKED.get(dtype)
    content = b"".join(packed)
    if form is None or integers or len(content) != struct.calcsize(form):
        return None, None
    place = packed[0] if dtype == 1 and len(packed) == 1 else None
    return float(struct.unpack(form, content)[0]), place


def _varints(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        yield to_signed(value)
