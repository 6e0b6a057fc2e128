"""Messages of Protocol Buffers: fields that are read by their numbers, and written."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping

from cloud_ml.errors import InvalidRequest, TooLarge
from cloud_ml.settings.sizes import MIB
from cloud_ml.tracking import protobuf
from cloud_ml.tracking.protobuf import BYTES, FIXED64, VARINT, NotAMessage

_DOUBLE = struct.Struct("<d")
_MOST_BITS = (1 << 64) - 1
MOST_ANSWER = 64 * MIB
"""Bytes of an answer: it is in memory as a whole."""
_MOST_FIELDS = 50_000
"""Of one message: a field of 2 bytes takes more than 200 in memory."""


class Message:
    """The fields of a message. One that is absent has the default of its type; of a field that comes
    more than once the last counts, unless it is a list.

    Raises:
        InvalidRequest: The bytes are no message.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._fields: dict[int, list[tuple[int, int | memoryview]]] = {}
        try:
            for number, kind, value in _fields(memoryview(data)):
                self._fields.setdefault(number, []).append((kind, value))
        except NotAMessage as error:
            raise InvalidRequest(
                f"The body is not a valid message: {error}", field="body"
            ) from None

    def integer(self, number: int) -> int:
        """A number with a sign, of 64 bits."""
        found = self._last(number, VARINT)
        return protobuf.to_signed(found) if isinstance(found, int) else 0

    def integers(self, number: int) -> list[int]:
        """A list of such numbers, packed or not."""
        found: list[int] = []
        for kind, value in self._fields.get(number, ()):
            if kind == VARINT and isinstance(value, int):
                found.append(protobuf.to_signed(value))
            elif kind == BYTES and isinstance(value, memoryview):
                found += _unpack_integers(value, number)
        return found

    def double(self, number: int) -> float:
        """A float."""
        found = self._last(number, FIXED64)
        return _double(found) if isinstance(found, memoryview) else 0.0

    def doubles(self, number: int) -> tuple[float, ...]:
        """A list of floats, packed or not."""
        found: list[float] = []
        for kind, value in self._fields.get(number, ()):
            if isinstance(value, memoryview) and kind in (FIXED64, BYTES):
                if len(value) % _DOUBLE.size:
                    raise _wrong_field(number, "floats of 8 bytes")
                found += (each for (each,) in _DOUBLE.iter_unpack(value))
        return tuple(found)

    def text(self, number: int) -> str:
        """A text."""
        found = self._last(number, BYTES)
        try:
            return str(found, "utf-8") if isinstance(found, memoryview) else ""
        except UnicodeDecodeError:
            raise _wrong_field(number, "a text in UTF-8") from None

    def messages(self, number: int) -> Iterable[Message]:
        """A list of messages, such as the entries of a map."""
        for kind, value in self._fields.get(number, ()):
            if kind == BYTES and isinstance(value, memoryview):
                yield Message(value)

    def texts(self, number: int) -> dict[str, str]:
        """A map from texts to texts."""
        return {entry.text(1): entry.text(2) for entry in self.messages(number)}

    def _last(self, number: int, kind: int) -> int | memoryview | None:
        return next(
            (value for its, value in reversed(self._fields.get(number, ())) if its == kind), None
        )


def _fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    for count, field in enumerate(protobuf.fields(data)):
        if count == _MOST_FIELDS:
            raise NotAMessage(f"it has more than {_MOST_FIELDS} fields")
        yield field


def integer(number: int, value: int) -> bytes:
    """A field with a whole number, a state or a truth; 0 is left out."""
    # proto3 leaves out default values, and readers take what is absent for 0.
    return _varint(number << 3 | VARINT) + _varint(int(value) & _MOST_BITS) if value else b""


def integers(number: int, values: Iterable[int]) -> bytes:
    """A field with a list of them."""
    return chunk(number, b"".join(_varint(value & _MOST_BITS) for value in values))


def double(number: int, value: float) -> bytes:
    """A field with a float."""
    return _varint(number << 3 | FIXED64) + _DOUBLE.pack(value)


def doubles(number: int, values: Iterable[float]) -> bytes:
    """A field with a list of them."""
    return chunk(number, b"".join(map(_DOUBLE.pack, values)))


def text(number: int, value: str) -> bytes:
    """A field with a text."""
    return chunk(number, value.encode())


def texts(number: int, table: Mapping[str, str]) -> bytes:
    """A map from texts to texts."""
    return b"".join(message(number, text(1, key) + text(2, value)) for key, value in table.items())


def message(number: int, content: bytes) -> bytes:
    """A field with a message, which may be empty."""
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content


def messages(number: int, contents: Iterable[bytes]) -> bytes:
    """A field with a list of messages.

    Raises:
        TooLarge: They are more than one answer may have.
    """
    found, size = [], 0
    for content in contents:
        found.append(message(number, content))
        size += len(found[-1])
        if size > MOST_ANSWER:
            raise TooLarge(f"the answer would have more than {MOST_ANSWER} bytes")
    return b"".join(found)


def chunk(number: int, content: bytes) -> bytes:
    """A field with bytes; none are left out."""
    return message(number, content) if content else b""


def _unpack_integers(data: memoryview, number: int) -> list[int]:
    found, at = [], 0
    try:
        while at < len(data):
            value, at = protobuf.varint(data, at)
            found.append(protobuf.to_signed(value))
    except NotAMessage:
        raise _wrong_field(number, "whole numbers") from None
    return found


def _double(data: memoryview) -> float:
    value: float = _DOUBLE.unpack(data)[0]
    return value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _wrong_field(number: int, allowed: str) -> InvalidRequest:
    return InvalidRequest(f"field {number} of the message is not {allowed}", field=str(number))
