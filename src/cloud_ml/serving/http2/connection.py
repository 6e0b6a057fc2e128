"""One HTTP/2 connection of a client: frames in, whole requests out, answers back within the peer's windows."""

import asyncio
from typing import Generic, NoReturn, TypeVar, cast

from cloud_ml.serving.http2 import frames
from cloud_ml.serving.http2.bodies import Bodies
from cloud_ml.serving.http2.frames import ConnectionFault
from cloud_ml.serving.http2.headers import Heads
from cloud_ml.serving.http2.outgoing import EMPTY, Body, Outgoing
from cloud_ml.serving.http2.patience import Patience
from cloud_ml.serving.http2.service import Service
from cloud_ml.serving.http2.straight import LONG, Straight
from cloud_ml.serving.http2.stream import Limits, Received, Stream
from cloud_ml.serving.turns import Turns

H = TypeVar("H")
WORTH = 1_024
"""Bytes of a frame that has not come whole from which on they are taken as they are."""
OTHERS = 65_536
"""Bytes of a frame that is no data."""
LAST = 0x7FFFFFFF
"""The highest number of a stream."""
CUT_SHORT_KEPT = 1_000
"""Streams that ended before their request was whole, and whose peer may not know it yet."""


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
        self._bodies = Bodies(limits, service.length, self._streams, self._outgoing)
        self._rest = b""
        self._due: tuple[int, int, int] | None = None  # of a frame of data: stream, flags, bytes to come
        self._last = 0
        self._begun = False
        self._patience = Patience(limits)
        self._settled = False
        self._paused = False
        self._cut_short: dict[int, None] = {}
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
        self._bodies.drop()

    def pause_writing(self) -> None:
        """The peer does not read: take nothing more from it."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def busy(self) -> bool:
        """Whether a request is under way; who only listens does not count."""
        return bool(self._outgoing.waiting) or any(stream.sink is None for stream in self._streams.values())

    def leave(self) -> None:
        """Take no new request; close when the last answer is out."""
        if not self._leaving:
            self._leaving = True
            self._outgoing.send(frames.goaway(self._last, frames.NO_ERROR))
        self._close_if_done()

    def tick(self, _now: float) -> None:
        """A second passed: cut who is too slow."""
        outgoing = self._outgoing
        stuck = self._paused or (bool(outgoing.waiting) and not outgoing.moved)
        outgoing.moved = False
        half = not self._settled or self._split is not None or self._rest[3:4] not in (b"", b"\0")
        try:
            self._patience.second(half=half, stuck=stuck)
        except ConnectionFault as fault:
            self._fail(fault)
            if self._paused and self._transport is not None:
                self._transport.abort()
            return
        for number in [number for number, stream in self._streams.items() if self._too_slow(stream)]:
            self._forget(number, self._streams[number])
            outgoing.send(frames.reset(number, frames.CANCEL))
        if self._patience.idle and not self._streams and not outgoing.waiting:
            self.leave()

    def _too_slow(self, stream: Stream[H]) -> bool:
        if stream.asked or stream.sink is not None:
            return False
        stream.age += 1
        return stream.age > self._limits.body_s

    def _close_if_done(self) -> None:
        if self._leaving and not self.busy:
            self._outgoing.flush()
            if self._transport is not None:
                self._transport.close()

    # --- frames in ---

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        self._patience.quiet = 0
        at, end = 0, len(data)
        try:
            if self._due is not None:
                at = self._go_on(data, *self._due)
            if not self._begun:
                at = self._preface(data)
                if not self._begun:
                    self._rest = data
                    return
            while end - at >= 9:
                high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
                size = high << 8 | low
                stop = at + 9 + size
                if stop > end and size <= self._limits.frame_bytes:
                    if kind != frames.DATA:
                        self._bound(size)
                    elif end - at > WORTH:
                        at = self._part(number & LAST, flags, data, at + 9, stop)
                    break
                if size > self._limits.frame_bytes or (self._split is not None and kind != frames.CONTINUATION):
                    self._refuse(size)
                if kind == frames.DATA:
                    self._data(number & LAST, flags, data, at + 9, stop)
                elif kind == frames.HEADERS:
                    if flags == frames.END_HEADERS and self._known(number, data[at + 9 : stop]):
                        at = stop
                        continue
                    self._headers(number & LAST, flags, data[at + 9 : stop])
                else:
                    self._other(kind, number & LAST, flags, data[at + 9 : stop])
                at = stop
        except ConnectionFault as fault:
            self._fail(fault)
            return
        self._rest = data[at:] if at < end else b""
        if self._due is not None and self.long:
            self._go_straight()

    # --- long bodies: see ``Straight`` ---

    def _go_straight(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing() and transport.get_protocol() is self:
            Straight(self, transport)

    @property
    def long(self) -> bool:
        """Whether much of the body is still to come to which the frame belongs that has not come whole."""
        return self._due is not None and self._bodies.lacks(self._due[0]) >= LONG

    def room(self) -> memoryview | None:
        """Where the next bytes belong; None where they are to be looked at first."""
        due = self._due
        return self._bodies.room(due[0], due[2]) if due is not None else None

    def placed(self, size: int) -> None:
        """So many bytes were put there."""
        assert self._due is not None
        number, flags, due = self._due
        self._patience.quiet = 0
        self._due = (number, flags, due - size) if size < due else None
        try:
            self._bodies.placed(number, size)
        except ConnectionFault as fault:
            self._fail(fault)
            return
        if size == due and flags & frames.END_STREAM:
            self._whole(number, self._streams[number])

    def passing(self, data: memoryview) -> None:
        """Take bytes from memory that is used again: pieces of bodies go where they belong, all else is copied."""
        at = 0
        if not self._rest and self._split is None:
            try:
                at = self._pieces(data)
            except ConnectionFault as fault:
                self._fail(fault)
                return
        self._patience.quiet = 0
        if at < len(data):
            self.data_received(bytes(data[at:]))

    def _pieces(self, data: memoryview) -> int:
        """Take what goes to bodies, and heads that are known, up to the first frame that is something else."""
        at, end, most = 0, len(data), self._limits.frame_bytes
        if self._due is not None:
            at = self._go_on(data, *self._due)
        while end - (at := self._bodies.add_frames(data, at)) >= 9:
            high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
            size = high << 8 | low
            begin, stop = at + 9, at + 9 + size
            if stop > end or size > most:
                if kind == frames.DATA and size <= most and end - at > WORTH:
                    at = self._part(number & LAST, flags, data, begin, stop)
                break
            if kind == frames.DATA and (not flags or (flags == frames.END_STREAM and self._bodies.lacks(number))):
                self._data(number & LAST, flags, data, begin, stop)
            elif (
                kind != frames.HEADERS
                or flags != frames.END_HEADERS
                or not self._known(number, bytes(data[begin:stop]))
            ):
                break
            at = stop
        return at

    # --- frames in, one by one ---

    def _part(self, number: int, flags: int, data: bytes | memoryview, at: int, stop: int) -> int:
        """Take what has come of a frame of data, so that it is not copied to what comes; where to read on."""
        stream = self._streams.get(number)
        if self._split is not None or flags & frames.PADDED or stream is None or stream.asked:
            return at - 9
        self._data(number, 0, data, at, len(data))
        self._due = number, flags, stop - len(data)
        return len(data)

    def _go_on(self, data: bytes | memoryview, number: int, flags: int, due: int) -> int:
        """The rest of such a frame; where the next one begins."""
        stop = min(due, len(data))
        self._due = (number, flags, due - stop) if stop < due else None
        self._data(number, flags if stop == due else 0, data, 0, stop)
        return stop

    def _bound(self, size: int) -> None:
        """See that a frame that is no data is not long; before it has come whole, so that it is not kept until then."""
        if size > OTHERS:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, f"a frame of {size} bytes that is no data")

    def _refuse(self, size: int) -> NoReturn:
        if size > self._limits.frame_bytes:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        raise ConnectionFault(frames.PROTOCOL_ERROR, "a head that was not ended")

    def _preface(self, data: bytes) -> int:
        """Where the first frame begins, when it is known to be SETTINGS: section 3.4."""
        expected = frames.PREFACE
        size = len(expected)
        if not expected.startswith(data[:size]) or (len(data) > size + 3 and data[size + 3] != frames.SETTINGS):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "not HTTP/2")
        self._begun = len(data) > size + 3
        return size

    def _fail(self, fault: ConnectionFault) -> None:
        self._rest = b""
        self._leaving = True
        self._outgoing.send(frames.goaway(self._last, fault.code, fault.why))
        self._outgoing.flush()
        self._outgoing.close()
        self._streams.clear()  # nobody gets these answers
        self._bodies.drop()
        if self._transport is not None:
            self._transport.close()

    def _known(self, number: int, block: bytes) -> bool:
        """Take a request whose head came before, as nearly all did; False where there is more to look at."""
        head = self._heads.known(block)
        if head is None or not self._last < number <= LAST or not number & 1 or self._full():
            return False
        self._last = number
        self._streams[number] = Stream(head)
        return True

    def _headers(self, number: int, flags: int, block: bytes) -> None:
        self._bound(len(block))
        if flags & (frames.PADDED | frames.WITH_PRIORITY):
            block = frames.unpadded(block, flags)
        if number & 1 == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"a request on stream {number}")
        if flags & frames.END_HEADERS:
            self._head(number, flags, block)
        else:
            self._split = (number, flags, bytearray(block))

    def _head(self, number: int, flags: int, block: bytes) -> None:
        if number <= self._last:
            self._heads.read(block, trailers=True)
            self._trailers(number, flags)
            return
        head = self._heads.read(block)  # always: the table has to follow
        self._last = number
        if head is None or self._full():
            self._patience.free()
            self._refused(number, flags, frames.PROTOCOL_ERROR if head is None else frames.REFUSED_STREAM)
            return
        stream = Stream(head)
        self._streams[number] = stream
        if flags & frames.END_STREAM:
            stream.asked = True
            self._service.serve(self, number, head, b"")

    def _trailers(self, number: int, flags: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            if number in self._cut_short:
                return
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"a head on stream {number}, which is over")
        if stream.asked or not flags & frames.END_STREAM:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"a second head on stream {number}")
        self._whole(number, stream)

    def _full(self) -> bool:
        """Whether no further request can be taken now."""
        outgoing, limits = self._outgoing, self._limits
        under_way = len(self._streams) + outgoing.waiting
        return self._leaving or under_way >= limits.streams or outgoing.held > limits.unread_bytes

    def _refused(self, number: int, flags: int, code: int) -> None:
        if not flags & frames.END_STREAM:
            self._cut(number)
        self._outgoing.send(frames.reset(number, code))

    def _data(self, number: int, flags: int, data: bytes | memoryview, at: int, stop: int) -> None:
        size = stop - at
        self._bodies.count(size)
        stream = self._streams.get(number)
        if stream is None or stream.asked:
            self._unexpected(number, stream)
            return
        if flags & frames.PADDED:
            if not size or data[at] >= size:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "more padding than frame")
            stop -= data[at]
            at += 1
        body = stream.body
        if body is None:
            if flags & frames.END_STREAM:
                stream.asked = True
                self._service.serve(self, number, stream.head, bytes(data[at:stop]))
                return
            if stream.sink is None:
                stream.sink = self._service.sink(self, number, stream.head)
        if stop == at and not flags & frames.END_STREAM:
            self._patience.free()
        elif stream.sink is not None:
            stream.sink.data(bytes(data[at:stop]), ended=False)
        elif not self._bodies.add(stream, data, at, stop):
            self._forget(number, stream)
            self._outgoing.send(*self._limits.too_large(number), frames.reset(number, frames.NO_ERROR))
            return
        elif flags & frames.END_STREAM:
            self._whole(number, stream)
            return
        self._bodies.acknowledge(number, stream, size)

    def _unexpected(self, number: int, stream: Stream[H] | None) -> None:
        """Data where none can be: section 5.1."""
        if number > self._last or number == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"data on stream {number}, which was not opened")
        if stream is not None:
            self._patience.free()
            self._forget(number, stream)
            self._outgoing.send(frames.reset(number, frames.STREAM_CLOSED))
        elif number not in self._cut_short:
            raise ConnectionFault(frames.STREAM_CLOSED, f"data on stream {number}, which is over")

    def _cut(self, number: int) -> None:
        """Pass over what still comes on a stream."""
        self._cut_short[number] = None
        if len(self._cut_short) > CUT_SHORT_KEPT:
            del self._cut_short[next(iter(self._cut_short))]

    def _whole(self, number: int, stream: Stream[H]) -> None:
        body = self._bodies.release(stream)
        stream.asked = True
        self._service.serve(self, number, stream.head, body.whole() if body is not None else b"")

    def _forget(self, number: int, stream: Stream[H]) -> None:
        self._bodies.release(stream)
        del self._streams[number]
        if not stream.asked:
            self._cut(number)

    def _other(self, kind: int, number: int, flags: int, payload: bytes) -> None:
        self._bound(len(payload))
        if kind == frames.WINDOW_UPDATE:
            if len(payload) != 4:
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE")
            if number > self._last:
                raise ConnectionFault(frames.PROTOCOL_ERROR, f"a window of stream {number}, which was not opened")
            self._outgoing.more(number, frames.NUMBER.unpack(payload)[0] & 0x7FFFFFFF, self._streams.get(number))
            self._close_if_done()
        elif kind == frames.PING:
            if len(payload) != 8 or number:
                raise ConnectionFault(frames.PROTOCOL_ERROR if number else frames.FRAME_SIZE_ERROR, "PING")
            self._patience.free()
            if not flags & frames.ACK:
                self._outgoing.send(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.SETTINGS:
            self._patience.free()
            self._outgoing.settings(number, flags, payload)
            self._settled = True
        elif kind == frames.RST_STREAM:
            self._reset(number, payload)
        elif kind == frames.CONTINUATION:
            self._continuation(number, flags, payload)
        elif kind == frames.GOAWAY:
            self._leaving = True  # answers under way still go out
            self._close_if_done()
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a client does not push")
        else:
            self._patience.free()  # PRIORITY and unknown kinds are passed over: section 5.5

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
        if self._outgoing.drop(number) or stream is not None:
            self._patience.free()
            self._close_if_done()

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
        if self._patience.count:
            self._patience.count -= 1
        self._outgoing.answer(number, stream, head, body, trailers)
        if self._leaving:
            self._close_if_done()

    # --- bodies and answers piece by piece ---

    def listen(self, number: int, body: Received) -> None:
        """Give a body that came whole to who takes it piece by piece."""
        stream = self._streams[number]
        sink = stream.sink = stream.sink or self._service.sink(self, number, stream.head)
        if sink is not None:
            sink.data(bytes(body), ended=True)

    def begin(self, number: int, head: bytes) -> None:
        """The head of an answer that comes in pieces."""
        if number in self._streams:
            self._outgoing.begin(number, head)

    def push(self, number: int, data: bytes) -> None:
        """A piece of an answer; who does not read is given up."""
        stream = self._streams.get(number)
        if stream is None:
            return
        self._outgoing.push(number, stream, data)
        if self._outgoing.holds(number) > self._limits.pushed_bytes:
            self._outgoing.drop(number)
            self._forget(number, stream)
            self._outgoing.send(frames.reset(number, frames.ENHANCE_YOUR_CALM))

    def finish(self, number: int, trailers: bytes) -> None:
        """The end of such an answer."""
        stream = self._streams.get(number)
        if stream is None:
            return
        self._forget(number, stream)
        self._outgoing.finish(number, trailers)
        if not stream.asked and not self._outgoing.holds(number):
            self._outgoing.send(frames.reset(number, frames.NO_ERROR))
        self._close_if_done()
