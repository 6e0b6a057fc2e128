"""The client side of HTTP/1.1: one call at a time over a connection to a replica, read strictly."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Protocol, cast

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[ \t]*[\x21-\x7e\x80-\xff])*)?)[ \t]*"
)
_DROPPED = {
    b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"trailer",
    b"content-length", b"date", b"cloudml-release",
}  # fmt: skip
_HEAD_BYTES = 65_536


class Caller(Protocol):
    """Who waits for an answer; one of these is called, once, unless the call is cancelled."""

    def answered(self, status: int, fields: bytes, body: bytes) -> None:
        """The answer is whole; ``fields`` are lines to pass on."""

    def failed(self, *, refused: bool, too_large: bool = False, broken: bool = False) -> None:
        """There will be no answer; ``refused``: the replica has surely not begun to work on it."""


class Http1Client(asyncio.Protocol):
    """One connection, for one call after the other.

    Args:
        body_bytes: The largest body of an answer.
        free: Called when the next call can be made.
        gone: Called once when the connection is lost.
    """

    def __init__(
        self, body_bytes: int, free: Callable[[Http1Client], None], gone: Callable[[Http1Client], None]
    ) -> None:
        self._body_bytes = body_bytes
        self._free = free
        self._gone: Callable[[Http1Client], None] | None = gone
        self._transport: asyncio.Transport | None = None
        self._caller: Caller | None = None
        self._data = b""
        self._parts: list[bytes] = []
        self._missing = -1
        self._head: tuple[int, bytes, bool] | None = None
        self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(lambda caller: caller.failed(refused=False))

    @property
    def open(self) -> bool:
        """Whether a call can be made."""
        return self._caller is None and self._transport is not None and not self._transport.is_closing()

    def call(self, head: bytes, body: bytes, caller: Caller) -> None:
        """Send a whole request."""
        assert self._transport is not None
        self._caller = caller
        self.used = True
        self._transport.write(head + body if len(body) < 65_536 else head)
        if len(body) >= 65_536:
            self._transport.write(body)

    def cancel(self) -> None:
        """Nobody waits any more: nothing but closing says so."""
        self._caller = None
        self.close()

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self, tell: Callable[[Caller], None]) -> None:
        caller, self._caller = self._caller, None
        gone, self._gone = self._gone, None
        self.close()
        if gone is not None:
            gone(self)
        if caller is not None:
            tell(caller)

    def data_received(self, data: bytes) -> None:
        if self._caller is None:  # it speaks without being asked
            self.close()
            return
        if self._head is not None:
            self._body(data)
            return
        self._data += data
        while self._head is None:
            stop = self._data.find(b"\r\n\r\n") + 4
            if stop < 4:
                if len(self._data) > _HEAD_BYTES:
                    self._end(lambda caller: caller.failed(refused=False, broken=True))
                return
            head, self._data = self._data[: stop - 4], self._data[stop:]
            try:
                status, fields, length, last = _read(head)
            except ValueError:
                self._end(lambda caller: caller.failed(refused=False, broken=True))
                return
            if status >= 200:
                self._head, self._missing = (status, fields, last), length
        if self._missing > self._body_bytes:
            self._end(lambda caller: caller.failed(refused=False, too_large=True))
            return
        data, self._data = self._data, b""
        self._body(data)

    def _body(self, data: bytes) -> None:
        assert self._head is not None
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        status, fields, last = self._head
        body = b"".join(self._parts)
        extra = -self._missing
        self._head, self._parts, self._missing = None, [], -1
        if extra or last:
            whole = body[: len(body) - extra]
            self._end(lambda caller: caller.answered(status, fields, whole))
            return
        caller, self._caller = self._caller, None
        self._free(self)
        if caller is not None:
            caller.answered(status, fields, body)


def _read(head: bytes) -> tuple[int, bytes, int, bool]:
    """Status, lines to pass on, length of the body, and whether the connection ends.

    Raises:
        ValueError: It is no head, or the body's end cannot be known before the connection's.
    """
    lines = head.split(b"\r\n")
    line = _STATUS.fullmatch(lines[0])
    if line is None:
        raise ValueError("no status line")
    status, length, last, passed = int(line[1]), -1, False, []
    for each in lines[1:]:
        field = _FIELD.fullmatch(each)
        if field is None:
            raise ValueError("a line of the head is no field")
        name, value = field[1].lower(), field[2]
        if name == b"content-length":
            if length >= 0 or not value.isdigit() or len(value) > 18:
                raise ValueError("content-length")
            length = int(value)
        elif name == b"transfer-encoding":
            raise ValueError("the model server tells the length of its answers")
        elif name == b"connection":
            last = last or b"close" in value.lower()
        if name not in _DROPPED:
            passed.append(each + b"\r\n")
    if status in (204, 304):
        length = 0
    if length < 0 and status >= 200:
        raise ValueError("an answer without a length")
    return status, b"".join(passed), length, last
