"""What is put together from chunks of a stream, whoever reads it: events, and the end of a log."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from cloud_ml.errors import InvalidRequest, TransportError
from cloud_ml.models import codec

T = TypeVar("T")


_MOST_DIGITS = 20
"""Of the number of an event."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream."""

    id: int | None
    kind: str
    data: str


class EventReader:
    """Reads server-sent events; comments and whatever is cut off at the end are left out."""

    def __init__(self) -> None:
        self._fields: dict[str, list[str]] = {}
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        """The events that ``chunk`` completes. Iterate to the end before the next call."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                name, _, value = line.decode("utf-8", "replace").rstrip("\r").partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            fields, self._fields = self._fields, {}
            if "data" in fields:
                number = fields.get("id", [""])[-1]
                kind = fields.get("event", ["message"])[-1]
                known = number.isascii() and number.isdigit() and len(number) < _MOST_DIGITS
                yield ServerEvent(int(number) if known else None, kind, "\n".join(fields["data"]))


def document_of(kind: type[T], text: str | bytes) -> T:
    """A document that came as a piece of a stream.

    Raises:
        TransportError: It is none, so the stream is not one of ours.
    """
    try:
        return codec.decode(kind, json.loads(text), ignore_unknown=True)
    except (ValueError, RecursionError, InvalidRequest):
        start = ascii(text)[:60]
        raise TransportError(
            f"the stream holds what no Cloud ML server sends: {start}", hint="Try again."
        ) from None


class LastLines:
    """Keeps the last ``lines`` lines of a text; an unfinished line counts as one.

    Attributes:
        size: How many bytes there were in all.
    """

    def __init__(self, lines: int) -> None:
        self.size = 0
        self._kept: deque[bytes] = deque(maxlen=lines)
        self._open = b""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self.size += len(chunk)
        *complete, self._open = (self._open + chunk).split(b"\n")
        self._kept.extend(line + b"\n" for line in complete)

    def text(self) -> bytes:
        """The lines."""
        kept = self._kept.copy()
        if self._open:
            kept.append(self._open)
        return b"".join(kept)
