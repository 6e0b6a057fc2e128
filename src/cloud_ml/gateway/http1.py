"""The client side of HTTP/1.1: one call at a time over a connection to a replica, read strictly.

Nothing is remembered of one answer for the next: each head is parsed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Protocol, cast

from cloud_ml.gateway.answer_body import AnswerBody
from cloud_ml.gateway.client_limits import ClientLimits
from cloud_ml.net.budget import COUNTED, Budget
from cloud_ml.net.pieces import Pieces, gather_pieces, pieces_of
from cloud_ml.net.work_share import WorkShare

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[ \t]*[\x21-\x7e\x80-\xff])*)?)[ \t]*"
)
_DROPPED = {
    b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"trailer",
    b"content-length", b"date", b"cloudml-release",
}  # fmt: skip


class Caller(Protocol):
    """Who waits for an answer; one of these is called, once, unless the call is cancelled."""

    def answered(self, status: int, fields: bytes, body: bytes | Pieces) -> None:
        """The answer is whole; ``fields`` are lines to pass on."""

    def failed(
        self, *, refused: bool, too_large: bool = False, broken: bool = False, no_room: bool = False
    ) -> None:
        """There will be no answer; ``refused``: the replica has surely not begun to work on it."""


class Http1Client(asyncio.Protocol):
    """One connection, for one call after the other.

    Args:
        limits: What the replica may send.
        free: Called when the next call can be made.
        gone: Called once when the connection is lost.
        share: The work for the replica in a turn.
        report: Called with a reason when the connection is closed because the replica broke a rule
            or a bound.
        bodies: What bodies may take.
    """

    def __init__(
        self,
        limits: ClientLimits,
        free: Callable[[Http1Client], None],
        gone: Callable[[Http1Client], None],
        *,
        share: WorkShare,
        report: Callable[[str], None],
        bodies: Budget,
    ) -> None:
        self._limits = limits
        self._free = free
        self._gone: Callable[[Http1Client], None] | None = gone
        self._share = share
        self._report = report
        self._bodies = bodies
        self._held = 0  # bytes of the answer that count there
        self._transport: asyncio.Transport | None = None
        self._caller: Caller | None = None
        self._rest = b""  # of a head
        self._searched = 0
        self._head_bytes = self._interim = 0
        self._body = AnswerBody()
        self._missing = -1
        self._head: tuple[int, bytes, bool] | None = None
        self._deferred = False  # bytes wait for a later turn
        self._silent_s = 0
        self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(lambda caller: caller.failed(refused=False))

    @property
    def open(self) -> bool:
        """Whether a call can be made."""
        return (
            self._caller is None
            and self._transport is not None
            and not self._transport.is_closing()
        )

    def call(self, head: bytes, body: bytes | Pieces, caller: Caller) -> None:
        """Send a whole request."""
        assert self._transport is not None
        self._caller = caller
        self.used = True
        self._silent_s = 0
        if isinstance(body, bytes) and len(body) < 65_536:
            self._transport.write(head + body)
            return
        self._transport.write(head)
        for piece in pieces_of(body):
            self._transport.write(piece)

    def cancel(self) -> None:
        """Nobody waits any more: nothing but closing says so."""
        self._caller = None
        self.close()

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    def tick(self) -> None:
        """A second passed: fail a call whose answer has begun and does not go on."""
        if self._caller is None or not (self._rest or self._head is not None) or self._deferred:
            return
        self._silent_s += 1
        most = self._limits.stalled_s if self._head is not None else self._limits.head_s
        if self._silent_s > most:
            self._break(f"an answer that paused for {most:g} s")

    def _hold(self, size: int) -> None:
        self._bodies.add(size - self._held)
        self._held = size

    def _end(self, tell: Callable[[Caller], None]) -> None:
        if self._held:
            self._hold(0)
        # Both are taken first: closing leads to `connection_lost`, which comes here again.
        caller, self._caller = self._caller, None
        gone, self._gone = self._gone, None
        self.close()
        if gone is not None:
            gone(self)
        if caller is not None:
            tell(caller)

    def _break(self, reason: str) -> None:
        """The replica broke a rule or a bound."""
        self._report(reason)
        self._end(lambda caller: caller.failed(refused=False, broken=True))

    # --- answers in ---

    def data_received(self, data: bytes) -> None:
        if self._caller is None:
            if self._gone is not None:
                self._report("bytes without a request")
            self.close()
        elif self._head is not None:
            self._silent_s = 0
            self._take_body(data)
        else:
            self._rest += data
            if not self._deferred:
                self._read_heads()

    def _read_heads(self) -> None:
        """Read interim answers and the head of the answer, as far as they came and as this turn
        allows.
        """
        at, rest, limits = 0, self._rest, self._limits
        try:
            while self._head is None:
                stop = rest.find(b"\r\n\r\n", max(at, self._searched)) + 4
                size = (stop if stop >= 4 else len(rest)) - at
                self._check_size(size)
                if stop < 4:
                    # What was searched is not searched again, but for three bytes in which the end
                    # may have begun: a head that comes byte by byte takes linear time.
                    self._searched = max(0, len(rest) - at - 3)
                    break
                if not self._share.spend(1 + (size >> 4)):
                    self._defer()
                    break
                head, at, self._searched = rest[at : stop - 4], stop, 0
                self._head_bytes += size
                self._read_head(head)
        except ValueError as error:
            self._break(str(error))
            return
        self._rest = rest[at:]
        if self._head is None:
            return
        if self._missing > limits.body_bytes:
            self._end(lambda caller: caller.failed(refused=False, too_large=True))
            return
        data, self._rest = self._rest, b""
        self._take_body(data)

    def _check_size(self, size: int) -> None:
        most = self._limits.head_bytes
        if self._head_bytes + size > most:
            raise ValueError(f"heads of more than {most} bytes")

    def _read_head(self, head: bytes) -> None:
        status, fields, length, last = _read(head, self._limits.fields)
        if status >= 200:
            self._head, self._missing = (status, fields, last), length
            return
        self._interim += 1
        # 101 would hand the connection to a protocol that nobody asked for.
        if status == 101 or self._interim > self._limits.interim:
            raise ValueError(f"interim answer {self._interim}, with status {status}")

    def _defer(self) -> None:
        self._deferred = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._share.defer(self._resume)

    def _resume(self) -> None:
        """A later turn: go on with what came."""
        self._deferred = False
        if self._caller is None:
            return
        self._read_heads()
        if not self._deferred and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _take_body(self, data: bytes) -> None:
        assert self._head is not None
        extra = len(data) - self._missing
        self._body.add(data[: self._missing] if extra > 0 else data)
        self._missing -= len(data)
        if self._body.size >= COUNTED:
            self._hold(self._body.size)
            if self._bodies.full:
                self._end(lambda caller: caller.failed(refused=False, no_room=True))
                return
        if self._missing > 0:
            return
        status, fields, last = self._head
        body = gather_pieces(self._body.pieces())
        self._forget_answer()
        if extra > 0:
            self._report(f"{extra} bytes more than the answer")
        # Bytes behind the answer could pass for the answer to another caller's request, so this
        # connection serves no other one (response splitting).
        if extra > 0 or last or not self._is_sent():
            self._end(lambda caller: caller.answered(status, fields, body))
            return
        caller, self._caller = self._caller, None
        self._free(self)
        if caller is not None:
            caller.answered(status, fields, body)

    def _is_sent(self) -> bool:
        """Whether the replica took the whole request; the next one would wait behind what it did
        not take.
        """
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def _forget_answer(self) -> None:
        self._head, self._body, self._missing = None, AnswerBody(), -1
        if self._held:
            self._hold(0)
        self._head_bytes = self._interim = self._silent_s = 0


def _read(head: bytes, most: int) -> tuple[int, bytes, int, bool]:
    """Status, lines to pass on, length of the body, and whether the connection ends.

    Raises:
        ValueError: It is no head, or the body's end cannot be known before the connection's.
    """
    lines = head.split(b"\r\n")
    if len(lines) - 1 > most:
        raise ValueError(f"a head of {len(lines) - 1} fields")
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
    # RFC 9112, section 6.3: these have no body, whatever their length says.
    if status in (204, 304):
        length = 0
    if length < 0 and status >= 200:
        raise ValueError("an answer without a length")
    return status, b"".join(passed), length, last
