"""The client side of HTTP/2: calls to one replica over one connection, RFC 9113 with bounds on everything.

The replica runs code of a tenant, so its frames are read as strictly as those of any stranger.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from cloud_ml.serving.http2 import frames
from cloud_ml.serving.http2.frames import ConnectionFault
from cloud_ml.serving.http2.headers import Blocks, Fields, Split, malformed_field
from cloud_ml.serving.http2.outgoing import Outgoing
from cloud_ml.serving.http2.stream import Received, Stream
from cloud_ml.serving.turns import Turns

_DROPPED = {
    b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"cloudml-release",
}  # fmt: skip
_FORGOTTEN = 1_000


class Caller(Protocol):
    """Who waits for an answer. One of ``ended`` and ``failed`` is called, once, unless the call is cancelled."""

    streams: bool
    """Whether pieces are wanted as they come."""

    def began(self, head: bytes) -> None:
        """The head of the answer came; only told to who takes pieces."""

    def piece(self, data: bytes) -> None:
        """A piece of the body; only told to who takes pieces."""

    def ended(self, head: bytes, body: tuple[bytes, ...], size: int, trailers: bytes) -> None:
        """The answer is whole: blocks of headers that need no table, and what of the body was not told yet."""

    def failed(self, *, refused: bool, too_large: bool = False) -> None:
        """There will be no answer; ``refused``: the replica has surely not begun to work on it."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a replica may make large, in bytes, numbers and seconds."""

    body_bytes: int = 64 << 20
    head_bytes: int = 65_536
    frame_bytes: int = 65_536
    window: int = 8 << 20
    streams: int = 1_000
    settled_s: int = 10


class _Call:
    """A call on its stream."""

    __slots__ = ("asked", "caller", "head", "parts", "size", "stream", "unacknowledged")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.stream: Stream[None] = Stream(None)
        self.head: bytes | None = None
        self.parts: list[bytes] = []
        self.size = 0
        self.unacknowledged = 0
        self.asked = True


class Http2Client(asyncio.Protocol):
    """One connection to a replica.

    Args:
        limits: What the replica may make large.
        turns: Frames are written at the end of a turn of the loop.
        gone: Called once when no further call can be made here.
    """

    def __init__(self, limits: ClientLimits, turns: Turns, gone: Callable[[Http2Client], None]) -> None:
        self._limits = limits
        self._outgoing = Outgoing(turns)
        self._gone: Callable[[Http2Client], None] | None = gone
        self._transport: asyncio.Transport | None = None
        self._heads = Blocks(_translated, limits.head_bytes)
        self._calls: dict[int, _Call] = {}
        self._ahead: deque[tuple[bytes, Received, Caller]] = deque()
        self._forgotten: dict[int, None] = {}
        self._next = 1
        self._most = 100  # until the replica says another number
        self._rest = b""
        self._split = Split(limits.head_bytes)
        self._settled = False
        self._age = 0
        self._unacknowledged = 0
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class
        self.open = True
        limits = self._limits
        self._outgoing.open(self._transport)
        wanted = {
            frames.ENABLE_PUSH: 0,
            frames.INITIAL_WINDOW_SIZE: limits.window,
            frames.MAX_FRAME_SIZE: limits.frame_bytes,
            frames.MAX_HEADER_LIST_SIZE: limits.head_bytes,
        }
        more = frames.window_update(0, limits.window - frames.DEFAULT_WINDOW)
        self._outgoing.send(frames.PREFACE, frames.settings(wanted), more)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._outgoing.close()
        self._fail_all(refused=False)

    def tick(self) -> None:
        """A second passed: give up a replica that does not even greet."""
        self._age += 1
        if not self._settled and self._age > self._limits.settled_s and self._transport is not None:
            self._transport.abort()

    # --- calls out ---

    def call(self, head: bytes, body: Received, caller: Caller) -> None:
        """Send a whole request; ``head`` is a block of headers that needs no table. Only while ``open``."""
        if len(self._calls) >= self._most:
            self._ahead.append((head, body, caller))
            return
        number, self._next = self._next, self._next + 2
        call = self._calls[number] = _Call(caller)
        self._outgoing.request(number, call.stream, head, body)
        if self._next > frames.LARGEST_WINDOW:
            self._leave()

    def begin(self, head: bytes, caller: Caller) -> int:
        """Begin a request whose body comes piece by piece; its number, or 0 where there are too many already."""
        if len(self._calls) >= self._most:
            return 0
        number, self._next = self._next, self._next + 2
        call = self._calls[number] = _Call(caller)
        call.asked = False
        self._outgoing.begin(number, head)
        return number

    def push(self, number: int, data: bytes, *, ended: bool) -> int:
        """A piece of such a body, and whether it was the last; how many bytes the replica has not taken yet."""
        call = self._calls.get(number)
        if call is None:
            return 0
        if data:
            self._outgoing.push(number, call.stream, data)
        if ended:
            call.asked = True
            self._outgoing.end(number)
        return self._outgoing.holds(number)

    def cancel(self, caller: Caller) -> None:
        """Nobody waits for this answer any more."""
        for number, call in self._calls.items():
            if call.caller is caller:
                self._forget(number)
                self._outgoing.send(frames.reset(number, frames.CANCEL))
                break
        else:
            self._ahead = deque(each for each in self._ahead if each[2] is not caller)
        self._go_on()

    def leave(self) -> None:
        """Make no further call; close when the last answer is in."""
        self._leave()
        self._go_on()

    def _leave(self) -> None:
        self.open = False
        gone, self._gone = self._gone, None
        if gone is not None:
            gone(self)

    def _go_on(self) -> None:
        while self._ahead and len(self._calls) < self._most and self.open:
            self.call(*self._ahead.popleft())
        if not self.open:
            ahead, self._ahead = self._ahead, deque()
            for _, _, caller in ahead:
                caller.failed(refused=True)
            if not self._calls and self._transport is not None:
                self._outgoing.flush()
                self._transport.close()

    # --- frames in ---

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        try:
            while end - at >= 9:
                high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
                size, number = high << 8 | low, number & 0x7FFFFFFF
                self._expect(size, kind, flags)
                stop = at + 9 + size
                if stop > end:
                    break
                self._frame(kind, flags, number, data[at + 9 : stop])
                at = stop
        except ConnectionFault as fault:
            self._fault(fault)
            return
        self._rest = data[at:] if at < end else b""

    def _expect(self, size: int, kind: int, flags: int) -> None:
        if size > self._limits.frame_bytes:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        if not self._settled and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "not HTTP/2")
        if self._split.open and kind != frames.CONTINUATION:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a head that was not ended")

    def _fault(self, fault: ConnectionFault) -> None:
        self._rest = b""
        self._leave()
        self._outgoing.send(frames.goaway(0, fault.code, fault.why))
        self._outgoing.flush()
        self._outgoing.close()
        if self._transport is not None:
            self._transport.abort()
        self._fail_all(refused=False)

    def _fail_all(self, *, refused: bool) -> None:
        calls, self._calls = self._calls, {}
        ahead, self._ahead = self._ahead, deque()
        for call in calls.values():
            call.caller.failed(refused=refused)
        for _, _, caller in ahead:
            caller.failed(refused=True)

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == frames.DATA:
            self._data(number, flags, payload)
        elif kind == frames.HEADERS:
            if flags & (frames.PADDED | frames.WITH_PRIORITY):
                payload = frames.unpadded(payload, flags)
            self._block(number, flags, payload)
        elif kind == frames.CONTINUATION:
            if (whole := self._split.add(number, flags, payload)) is not None:
                self._block(number, whole[0] | frames.END_HEADERS, whole[1])
        elif kind == frames.SETTINGS:
            self._settings(number, flags, payload)
        elif kind == frames.WINDOW_UPDATE:
            if len(payload) != 4:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE")
            call = self._calls.get(number)
            more = frames.NUMBER.unpack(payload)[0] & 0x7FFFFFFF
            self._outgoing.more(number, more, call.stream if call is not None else None)
        elif kind == frames.RST_STREAM:
            self._reset(number, payload)
        elif kind == frames.PING:
            if number or len(payload) != 8:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR if not number else frames.PROTOCOL_ERROR, "PING")
            if not flags & frames.ACK:
                self._outgoing.send(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.GOAWAY:
            self._goaway(payload)
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a push that was switched off")

    def _settings(self, number: int, flags: int, payload: bytes) -> None:
        self._outgoing.settings(number, flags, payload)
        if flags & frames.ACK:
            return
        self._settled = True
        for key, value in frames.SETTING.iter_unpack(payload):
            if key == frames.MAX_CONCURRENT_STREAMS:
                self._most = min(value, self._limits.streams)
        self._go_on()

    def _block(self, number: int, flags: int, block: bytes) -> None:
        if not flags & frames.END_HEADERS:
            self._split.begin(number, flags, block)
            return
        status, passed = self._heads.read(block)  # always: the table has to follow
        call = self._calls.get(number)
        if call is None:
            self._stranger(number)
            return
        ends = bool(flags & frames.END_STREAM)
        if call.head is not None:
            if not ends or status:
                raise ConnectionFault(frames.PROTOCOL_ERROR, f"a second head on stream {number}")
            self._whole(number, call, passed)
            return
        if not status:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"a head without a status on stream {number}")
        if status < 200 and not ends:
            return
        call.head = passed
        if ends:
            self._whole(number, call, b"")
        elif call.caller.streams:
            call.caller.began(passed)

    def _data(self, number: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        self._unacknowledged += size
        if self._unacknowledged > self._limits.window >> 1:
            self._outgoing.send(frames.window_update(0, self._unacknowledged))
            self._unacknowledged = 0
        call = self._calls.get(number)
        if call is None:
            self._stranger(number)
            return
        if call.head is None:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"data before the head on stream {number}")
        if flags & frames.PADDED:
            if not size or payload[0] >= size:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "more padding than frame")
            payload = payload[1 : size - payload[0]]
        if call.caller.streams:
            if payload:
                call.caller.piece(payload)
        else:
            call.parts.append(payload)
            call.size += len(payload)
            if call.size > self._limits.body_bytes:
                self._forget(number)
                self._outgoing.send(frames.reset(number, frames.CANCEL))
                call.caller.failed(refused=False, too_large=True)
                self._go_on()
                return
        if flags & frames.END_STREAM:
            if number in self._calls:
                self._whole(number, call, b"")
            return
        call.unacknowledged += size
        if call.unacknowledged > self._limits.window:
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, f"more data on stream {number} than was allowed")
        if call.unacknowledged > self._limits.window >> 1:
            self._outgoing.send(frames.window_update(number, call.unacknowledged))
            call.unacknowledged = 0

    def _whole(self, number: int, call: _Call, trailers: bytes) -> None:
        left = self._outgoing.drop(number)
        del self._calls[number]
        if left or not call.asked:  # answered before it had the whole request
            self._outgoing.send(frames.reset(number, frames.NO_ERROR))
            self._remember(number)
        assert call.head is not None
        call.caller.ended(call.head, tuple(call.parts), call.size, trailers)
        if self._ahead or not self.open:
            self._go_on()

    def _stranger(self, number: int) -> None:
        """Frames of a stream that is over for us and not for the replica yet."""
        if number == 0 or not number & 1 or number >= self._next:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"an answer on stream {number}, which was not opened")
        if number not in self._forgotten:
            raise ConnectionFault(frames.STREAM_CLOSED, f"more on stream {number}, which is over")

    def _forget(self, number: int) -> None:
        self._outgoing.drop(number)
        del self._calls[number]
        self._remember(number)

    def _remember(self, number: int) -> None:
        self._forgotten[number] = None
        if len(self._forgotten) > _FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def _reset(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM")
        if number == 0 or not number & 1 or number >= self._next:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"reset of stream {number}, which was not opened")
        call = self._calls.get(number)
        if call is None:
            return
        self._forget(number)
        code = frames.NUMBER.unpack(payload)[0]
        if code == frames.REFUSED_STREAM and call.head is None:
            call.caller.failed(refused=True)
        else:
            call.caller.failed(refused=False)
        self._go_on()

    def _goaway(self, payload: bytes) -> None:
        """The replica takes nothing new: what it has not begun is tried elsewhere."""
        if len(payload) < 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "GOAWAY")
        last = frames.NUMBER.unpack_from(payload)[0] & 0x7FFFFFFF
        self._leave()
        for number in [number for number in self._calls if number > last]:
            caller = self._calls[number].caller
            self._forget(number)
            caller.failed(refused=True)
        self._go_on()


def _translated(fields: Fields) -> tuple[int, bytes]:
    """The status, 0 for trailers, and a block to pass on, which needs no table.

    Raises:
        ConnectionFault: Something in it may not stand in an answer.
    """
    status, made = 0, []
    for at, (name, value) in enumerate(fields):
        if name == b":status" and at == 0 and len(value) == 3 and value.isdigit():
            status = int(value)
            made.append(b"\x88" if status == 200 else frames.field(name, value))
        elif malformed_field(name, value):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a field that may not stand in an answer")
        elif name not in _DROPPED:
            made.append(frames.field(name, value))
    return status, b"".join(made)
