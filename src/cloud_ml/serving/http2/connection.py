"""One HTTP/2 connection of a client: frames in, whole requests out, answers back within the peer's windows."""

import asyncio
from typing import Generic, NoReturn, Protocol, TypeVar, cast

from cloud_ml.serving.http2 import frames
from cloud_ml.serving.http2.frames import ConnectionFault
from cloud_ml.serving.http2.headers import Heads
from cloud_ml.serving.http2.outgoing import EMPTY, Body, Outgoing
from cloud_ml.serving.http2.stream import Limits, Stream
from cloud_ml.serving.turns import Turns

H = TypeVar("H")


class Service(Protocol[H]):
    """What a connection asks of whoever serves its requests."""

    def understand(self, fields: list[tuple[bytes, bytes]]) -> H:
        """What the head of a request means; never raises, an error is a meaning too. May be kept for other requests."""

    def serve(self, connection: "Http2Connection[H]", stream: int, head: H, body: bytes) -> None:
        """Answer a whole request, now or later, by ``connection.answer`` or ``connection.reset``."""


class Http2Connection(asyncio.Protocol, Generic[H]):
    """RFC 9113 as a server of unary requests.

    What a peer can make large is bounded by ``Limits``: frames, heads, bodies, streams, resets, and what waits to be
    written (nothing is read while the peer does not read).
    """

    def __init__(self, service: Service[H], limits: Limits, turns: Turns) -> None:
        self._service = service
        self._limits = limits
        self._heads: Heads[H] = Heads(service.understand, limits.head_bytes)
        self._streams: dict[int, Stream[H]] = {}
        self._outgoing = Outgoing(turns)
        self._rest = b""
        self._last = 0
        self._begun = False
        self._unacknowledged = 0
        self._buffered = 0
        self._resets = 0
        self._split: tuple[int, int, bytearray] | None = None
        self._leaving = False
        self._transport: asyncio.Transport | None = None

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class
        self._outgoing.open(self._transport)
        limits = self._limits
        self._outgoing.send(
            frames.settings(
                {
                    frames.MAX_CONCURRENT_STREAMS: limits.streams,
                    frames.INITIAL_WINDOW_SIZE: limits.window,
                    frames.MAX_FRAME_SIZE: limits.frame_bytes,
                    frames.MAX_HEADER_LIST_SIZE: limits.head_bytes,
                }
            ),
            frames.window_update(0, limits.window - frames.DEFAULT_WINDOW),
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._outgoing.close()
        self._streams.clear()

    def pause_writing(self) -> None:
        """The peer does not read: take nothing more from it."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return bool(self._streams) or self._outgoing.waiting

    def leave(self) -> None:
        """Take no new request; close when the last answer is out."""
        if not self._leaving:
            self._leaving = True
            self._outgoing.send(frames.goaway(self._last, frames.NO_ERROR))
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._leaving and not self.busy:
            self._outgoing.flush()
            if self._transport is not None:
                self._transport.close()

    # --- frames in ---

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        try:
            if not self._begun:
                at = self._preface(data)
            while end - at >= 9:
                high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
                size = high << 8 | low
                stop = at + 9 + size
                if stop > end and size <= self._limits.frame_bytes:
                    break
                if size > self._limits.frame_bytes or (self._split is not None and kind != frames.CONTINUATION):
                    self._refuse(size)
                if kind == frames.DATA:
                    self._data(number & 0x7FFFFFFF, flags, data, at + 9, stop)
                elif kind == frames.HEADERS:
                    self._headers(number & 0x7FFFFFFF, flags, data[at + 9 : stop])
                else:
                    self._other(kind, number & 0x7FFFFFFF, flags, data[at + 9 : stop])
                at = stop
        except ConnectionFault as fault:
            self._fail(fault)
            return
        self._rest = data[at:] if at < end else b""

    def _refuse(self, size: int) -> NoReturn:
        if size > self._limits.frame_bytes:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        raise ConnectionFault(frames.PROTOCOL_ERROR, "a head that was not ended")

    def _preface(self, data: bytes) -> int:
        expected = frames.PREFACE
        if not expected.startswith(data[: len(expected)]):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "not HTTP/2")
        self._begun = len(data) >= len(expected)
        return len(expected) if self._begun else 0

    def _fail(self, fault: ConnectionFault) -> None:
        self._rest = b""
        self._outgoing.send(frames.goaway(self._last, fault.code, fault.why))
        self._outgoing.flush()
        if self._transport is not None:
            self._transport.close()

    def _headers(self, number: int, flags: int, block: bytes) -> None:
        if flags & (frames.PADDED | frames.WITH_PRIORITY):
            block = _unpadded(block, flags)
        if number & 1 == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"a request on stream {number}")
        if flags & frames.END_HEADERS:
            self._head(number, flags, block)
        else:
            self._split = (number, flags, bytearray(block))

    def _head(self, number: int, flags: int, block: bytes) -> None:
        head = self._heads.read(block)  # always: the table has to follow
        if number <= self._last:
            self._trailers(number, flags)
            return
        self._last = number
        if self._leaving or len(self._streams) >= self._limits.streams:
            self._outgoing.send(frames.reset(number, frames.REFUSED_STREAM))
            return
        stream = Stream(head)
        self._streams[number] = stream
        if flags & frames.END_STREAM:
            stream.asked = True
            self._service.serve(self, number, head, b"")

    def _trailers(self, number: int, flags: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return  # it was answered or given up meanwhile
        if stream.asked or not flags & frames.END_STREAM:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"a second head on stream {number}")
        self._whole(number, stream)

    def _data(self, number: int, flags: int, data: bytes, at: int, stop: int) -> None:
        size = stop - at
        self._unacknowledged += size
        if self._unacknowledged > self._limits.window >> 1:
            self._outgoing.send(frames.window_update(0, self._unacknowledged))
            self._unacknowledged = 0
        stream = self._streams.get(number)
        if stream is None or stream.asked:
            if number > self._last or number == 0:
                raise ConnectionFault(frames.PROTOCOL_ERROR, f"data on stream {number}, which was not opened")
            return  # it was answered or given up meanwhile
        if flags & frames.PADDED:
            if not size or data[at] >= size:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "more padding than frame")
            stop -= data[at]
            at += 1
        if flags & frames.END_STREAM and not stream.chunks:
            stream.asked = True
            self._service.serve(self, number, stream.head, data[at:stop])
            return
        if stop == at and not flags & frames.END_STREAM:
            self._patience()
            return
        stream.chunks.append(data[at:stop])
        stream.size += stop - at
        self._buffered += stop - at
        if stream.size > self._limits.body_bytes or self._buffered > self._limits.buffered_bytes:
            self._forget(number, stream)
            self._outgoing.send(*self._too_large(number))
            return
        if flags & frames.END_STREAM:
            self._whole(number, stream)
            return
        stream.unacknowledged += size
        if stream.unacknowledged > self._limits.window >> 1:
            self._outgoing.send(frames.window_update(number, stream.unacknowledged))
            stream.unacknowledged = 0

    def _whole(self, number: int, stream: Stream[H]) -> None:
        body = b"".join(stream.chunks)
        self._buffered -= stream.size
        stream.chunks, stream.size, stream.asked = [], 0, True
        self._service.serve(self, number, stream.head, body)

    def _too_large(self, number: int) -> tuple[bytes, ...]:
        return (*self._limits.too_large(number), frames.reset(number, frames.NO_ERROR))

    def _forget(self, number: int, stream: Stream[H]) -> None:
        self._buffered -= stream.size
        del self._streams[number]

    def _patience(self) -> None:
        """Frames that cost a peer nothing are counted: resets, and data without data."""
        self._resets += 1
        if self._resets > self._limits.resets:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many requests that were given up")

    def _other(self, kind: int, number: int, flags: int, payload: bytes) -> None:
        if kind == frames.WINDOW_UPDATE:
            if len(payload) != 4:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE")
            self._outgoing.more(number, frames.NUMBER.unpack(payload)[0] & 0x7FFFFFFF, self._streams.get(number))
            self._close_if_done()
        elif kind == frames.PING:
            if len(payload) != 8 or number:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "PING")
            if not flags & frames.ACK:
                self._outgoing.send(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.SETTINGS:
            self._outgoing.settings(number, flags, payload)
        elif kind == frames.RST_STREAM:
            self._reset(number, payload)
        elif kind == frames.CONTINUATION:
            self._continuation(number, flags, payload)
        elif kind == frames.GOAWAY:
            self._leaving = True  # answers under way still go out
            self._close_if_done()
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a client does not push")
        # PRIORITY and unknown kinds are passed over: section 5.5

    def _continuation(self, number: int, flags: int, payload: bytes) -> None:
        if self._split is None or self._split[0] != number:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "CONTINUATION of nothing")
        _, first, block = self._split
        block += payload
        if len(block) > self._limits.head_bytes or (not payload and not flags & frames.END_HEADERS):
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "a head without end")
        if flags & frames.END_HEADERS:
            self._split = None
            self._head(number, first, bytes(block))

    def _reset(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM")
        if number == 0 or number > self._last:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"reset of stream {number}, which was not opened")
        stream = self._streams.get(number)
        if stream is not None:
            self._forget(number, stream)
            self._patience()
            self._close_if_done()
        self._outgoing.drop(number)

    # --- answers out ---

    def waits(self, number: int) -> bool:
        """Whether who asked on this stream still waits for the answer."""
        return number in self._streams

    def answer(self, number: int, head: bytes, body: Body = EMPTY, trailers: bytes = b"") -> None:
        """Send a whole answer: a block of headers, a body in pieces, a block of trailers.

        With no body, ``head`` alone ends the stream. An answer to who gave up goes nowhere.
        """
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        if self._resets:
            self._resets -= 1
        self._outgoing.answer(number, stream, head, body, trailers)
        if self._leaving:
            self._close_if_done()


def _unpadded(block: bytes, flags: int) -> bytes:
    """A HEADERS payload without its padding and priority: section 6.2."""
    start, pad = 0, 0
    if flags & frames.PADDED:
        if not block:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "HEADERS")
        start, pad = 1, block[0]
    if flags & frames.WITH_PRIORITY:
        start += 5
    if start + pad > len(block):
        raise ConnectionFault(frames.PROTOCOL_ERROR, "more padding than frame")
    return block[start : len(block) - pad]
