"""What the frames of a client mean: requests that open, grow, become whole or are given up."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from cloud_ml.net.budget import COUNTED
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import ConnectionFault, StreamFault
from cloud_ml.net.http2.headers import (
    OVERSIZED,
    Blocks,
    Fields,
    Split,
    declared_length,
    is_malformed,
    malformed_regular,
)
from cloud_ml.net.http2.outgoing import Outgoing
from cloud_ml.net.http2.service import Service
from cloud_ml.net.http2.stream import Limits, Stream
from cloud_ml.net.http2.stream_table import StreamTable
from cloud_ml.net.http2.timeouts import ConnectionTimeouts

H = TypeVar("H")
LAST = 0x7FFFFFFF
"""The highest number of a stream."""

TOO_LARGE = (
    b"\x08\x03431"  # :status
    + frames.literal("content-type", "application/grpc")
    + frames.literal("grpc-status", "8")
    + frames.literal("grpc-message", "the head of the request is too large")
)
"""Answers a head over its bound, for clients of HTTP and of gRPC."""


class _Sized(Generic[H]):
    """A head that tells the length of its body, where that is no message of gRPC."""

    __slots__ = ("head", "length")

    def __init__(self, head: H, length: int) -> None:
        self.head = head
        self.length = length


ANSWER_UNITS = 8
"""Units of a request that is answered as it is read. Others are bounded by the number of
streams.
"""
PIECE_UNITS = 4
"""Units of a piece of a body that is passed on."""


TOO_LARGE_COST = 16
"""A head over its bound costs as much as so many free frames: up to 8 ms to decode."""


class _TooLarge:
    """A head over its bound."""


_OVER_BOUND = _TooLarge()


class Requests(StreamTable[H]):
    """What a peer asks on the streams of a connection: RFC 9113, sections 5 and 6.

    ``split`` is a head that has not come whole, ``settled`` tells that the peer has said what it
    wants. Who reads frames calls what they mean; each may raise ``ConnectionFault``. ``extra`` are
    units of work beyond one for each request; who reads frames charges them and sets it to 0.
    """

    def __init__(
        self, service: Service[H], limits: Limits, outgoing: Outgoing, patience: ConnectionTimeouts
    ) -> None:
        super().__init__(service, limits, outgoing, patience)
        # Of H, _Sized[H], _TooLarge and None; ``known`` gives H or None, so that it need not look.
        self._heads: Blocks[Any] = Blocks(
            self._understood,
            limits.head_bytes,
            _OVER_BOUND,
            lambda found: isinstance(found, _Sized),
            limits.kept_head_bytes,
        )
        self.split = Split(OVERSIZED * limits.head_bytes, limits.empty_frames)
        self.settled = False
        self.extra = 0
        self._refused_head = limits.refused

    # --- heads ---

    def _understood(self, fields: Fields) -> H | _Sized[H] | None:
        # Understood once for all requests with this block, so it depends on nothing but the fields.
        length = declared_length(fields)
        if is_malformed(fields) or (length is not None and length < 0):
            return None
        head = self._service.understand(fields)
        return head if length is None else _Sized(head, length)

    def known(self, number: int, block: bytes) -> bool:
        """Take a request whose head came before, as nearly all did; False where there is more to
        look at.
        """
        head = self._heads.known(block)
        if head is None or not self._last < number <= LAST or not number & 1 or self._full():
            return False
        self._last = number
        self.streams[number] = Stream(head)
        if self._refused_head is not None and self._refused_head(head):
            self._serve_without_body(number, 0)
        return True

    def headers(self, number: int, flags: int, block: bytes) -> None:
        """A frame of HEADERS."""
        frames.bound(len(block))
        if flags & (frames.PADDED | frames.WITH_PRIORITY):
            block = frames.strip_padding(block, flags)
        if number & 1 == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"a request on stream {number}")
        if flags & frames.END_HEADERS:
            self._head(number, flags, block)
        else:
            self.split.begin(number, flags, block)

    def _head(self, number: int, flags: int, block: bytes) -> None:
        if number <= self._last:
            # Decoded even if the stream is over: the peer's table has changed, and ours must follow
            # (RFC 9113, section 4.3).
            self._trailers(number, flags, self._heads.fields(block))
            return
        head = self._heads.read(block)  # always: the table has to follow
        self._last = number
        self.extra += self._heads.take_units()
        ended = bool(flags & frames.END_STREAM)
        length = None
        if isinstance(head, _Sized):
            length = head.length
            # Section 8.1.1: a length without a body makes the request malformed.
            head = None if ended and length else head.head
        if head is None or isinstance(head, _TooLarge) or self._full():
            self._refuse_head(number, flags, head)
            return
        stream = Stream(head)
        self.streams[number] = stream
        if self._refused_head is not None and self._refused_head(head):
            self._serve_without_body(number, flags)
        elif ended:
            stream.dispatched = True
            self._service.serve(self, number, head, b"")
            if number not in self.streams:
                self.extra += ANSWER_UNITS
        elif length is not None:
            self._lengths[number] = length

    def _serve_without_body(self, number: int, flags: int) -> None:
        """Have a request refused before its body comes: a caller without a right fills no
        memory.
        """
        stream = self.streams[number]
        stream.dispatched = True
        self.extra += ANSWER_UNITS
        self._service.serve(self, number, stream.head, b"")
        if not flags & frames.END_STREAM:
            self._cut(number)
            # Section 8.1: NO_ERROR asks the client to send no more of the body. Only behind the
            # whole answer: a reset ends the stream in both directions.
            if not self._outgoing.holds(number):
                self._outgoing.send(frames.reset(number, frames.NO_ERROR))

    def _refuse_head(self, number: int, flags: int, head: H | _TooLarge | None) -> None:
        """Refuse one that is malformed, too large, or one too many."""
        self._patience.free(TOO_LARGE_COST if isinstance(head, _TooLarge) else 1)
        if head is None:
            self._refuse_stream(number, flags, frames.PROTOCOL_ERROR)
        elif not isinstance(head, _TooLarge):
            # Section 8.7: this code says that nothing was done, so the client may send it again.
            self._refuse_stream(number, flags, frames.REFUSED_STREAM)
        else:
            self._outgoing.send(frames.frame(frames.HEADERS, 0x5, number, TOO_LARGE))
            if not flags & frames.END_STREAM:
                self._refuse_stream(number, flags, frames.NO_ERROR)

    def _trailers(self, number: int, flags: int, fields: Fields) -> None:
        """A second head on a stream: sections 5.1 and 8.1."""
        stream = self.streams.get(number)
        if stream is None:
            if not self._is_tolerated(number):
                raise ConnectionFault(
                    frames.PROTOCOL_ERROR, f"a head on stream {number}, which is over"
                )
            return
        if stream.dispatched:
            self._give_up(number, stream, frames.STREAM_CLOSED)
        elif not flags & frames.END_STREAM or malformed_regular(fields):
            self._give_up(number, stream, frames.PROTOCOL_ERROR)
        else:
            self.whole(number)

    def _refuse_stream(self, number: int, flags: int, code: int) -> None:
        if not flags & frames.END_STREAM:
            self._cut(number)
        self._outgoing.send(frames.reset(number, code))

    # --- bodies ---

    def data(self, number: int, flags: int, data: bytes | memoryview, at: int, stop: int) -> None:
        """A frame of DATA, or a part of one that has no padding: ``data[at:stop]``."""
        size = stop - at
        # Section 6.9: each DATA frame counts in the connection's window, also one that is an error
        # or is thrown away. Else the windows of both sides would differ for good.
        self.bodies.count(size)
        stream = self.streams.get(number)
        if stream is None or stream.dispatched:
            self.extra += 1
            self._handle_unexpected_data(number, stream, size)
            return
        if flags & frames.PADDED:
            at, stop = _without_padding(data, at, stop)
        if stream.body is None:
            if flags & frames.END_STREAM:
                if self._lengths and not self._length_fits(number, stream, stop - at):
                    return
                if size >= COUNTED and not self.bodies.count_whole(stream, size):
                    self._no_room(number, stream)
                    return
                stream.dispatched = True
                self._service.serve(self, number, stream.head, bytes(data[at:stop]))
                if number not in self.streams:
                    self.extra += ANSWER_UNITS
                return
            if stream.sink is None:
                stream.sink = self._service.sink(self, number, stream.head)
        self.extra += 1
        if stop == at and not flags & frames.END_STREAM:
            # Empty frames are in no window and cost us a turn each (CVE-2019-9518).
            self._patience.free()
        elif stream.sink is not None:
            if number in self._lengths:
                self._lengths[number] -= stop - at
            self.extra += PIECE_UNITS
            stream.sink.data(bytes(data[at:stop]), ended=False)
        elif not self.bodies.add(stream, data, at, stop):
            self._no_room(number, stream)
            return
        elif flags & frames.END_STREAM:
            self.whole(number)
            return
        # With padding: section 6.1 counts the whole payload in the windows.
        self.bodies.acknowledge(number, stream, size)

    def _no_room(self, number: int, stream: Stream[H]) -> None:
        """Refuse a body that is too large, or for which all bodies together leave no room."""
        limits = self._limits
        answer = (
            limits.no_room
            if limits.no_room is not None and limits.budget.full
            else limits.too_large
        )
        self._forget(number, stream)
        self._outgoing.send(*answer(number), frames.reset(number, frames.NO_ERROR))

    def _handle_unexpected_data(self, number: int, stream: Stream[H] | None, size: int) -> None:
        """Data where none can be: section 5.1."""
        if number > self._last or number == 0:
            raise ConnectionFault(
                frames.PROTOCOL_ERROR, f"data on stream {number}, which was not opened"
            )
        if stream is not None:
            self._give_up(number, stream, frames.STREAM_CLOSED)
        elif not self._is_tolerated(number):
            raise ConnectionFault(frames.STREAM_CLOSED, f"data on stream {number}, which is over")
        else:
            # The client may not know of the reset yet: section 5.1 asks to ignore what it had sent.
            # More than a window cannot have been under way.
            came = self._passed_over[number] = self._passed_over.get(number, 0) + size
            if came > self._limits.window:
                raise ConnectionFault(
                    frames.FLOW_CONTROL_ERROR, f"data without end on stream {number}, which is over"
                )

    def whole(self, number: int) -> None:
        """The last of a body came."""
        stream = self.streams[number]
        if self._lengths:
            size = stream.body.size if stream.body is not None else 0
            if not self._length_fits(number, stream, size):
                return
        body = self.bodies.close(stream)
        stream.dispatched = True
        self._service.serve(self, number, stream.head, body.whole() if body is not None else b"")
        if number not in self.streams:
            self.extra += ANSWER_UNITS

    def _length_fits(self, number: int, stream: Stream[H], size: int) -> bool:
        """Whether a whole body, or the last piece of one that was passed on, is as long as its
        head says.
        """
        if self._lengths.pop(number, size) == size:
            return True
        self._give_up(number, stream, frames.PROTOCOL_ERROR)
        return False

    # --- all else ---

    def other(self, kind: int, number: int, flags: int, payload: bytes) -> None:
        """A frame of any other kind."""
        self.extra += 1
        frames.bound(len(payload))
        take = _METHODS.get(kind)
        if take is None:
            self._patience.free()  # an unknown kind is passed over: section 5.5
        else:
            take(self, number, flags, payload)

    # Answers to PING and SETTINGS cost the peer nothing to ask for: both are counted
    # (CVE-2019-9512, CVE-2019-9515).

    def _ping(self, number: int, flags: int, payload: bytes) -> None:
        """PING: section 6.7."""
        if number or len(payload) != 8:
            raise _fault_of_connection_frame(number, "PING")
        self._patience.free()
        if not flags & frames.ACK:
            self._outgoing.send(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _settings(self, number: int, flags: int, payload: bytes) -> None:
        """SETTINGS: section 6.5."""
        self._patience.free()
        self.extra += (len(payload) >> 4) + self._outgoing.settings(number, flags, payload)
        self.settled = True

    def _continuation(self, number: int, flags: int, payload: bytes) -> None:
        """CONTINUATION of a head: section 6.10."""
        if (whole := self.split.add(number, flags, payload)) is not None:
            self._head(number, *whole)

    def _goaway(self, number: int, _flags: int, payload: bytes) -> None:
        """GOAWAY: section 6.8. Answers under way still go out."""
        if number or len(payload) < 8:
            raise _fault_of_connection_frame(number, "GOAWAY")
        self._leaving = True
        self._close_if_done()

    def _push_promise(self, _number: int, _flags: int, _payload: bytes) -> None:
        """PUSH_PROMISE: section 8.4."""
        raise ConnectionFault(frames.PROTOCOL_ERROR, "a client does not push")

    def _priority(self, number: int, _flags: int, payload: bytes) -> None:
        """PRIORITY has no effect, and a form: section 6.3."""
        self._patience.free()
        if number == 0:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "PRIORITY of the connection")
        if len(payload) == 5:
            return
        stream = self.streams.get(number)
        if stream is None:  # there is no stream to end
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "PRIORITY")
        self._give_up(number, stream, frames.FRAME_SIZE_ERROR)

    def _window_update(self, number: int, _flags: int, payload: bytes) -> None:
        """The peer takes more: sections 6.9 and 6.9.1."""
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE")
        if number > self._last or (number and not number & 1):
            raise ConnectionFault(
                frames.PROTOCOL_ERROR, f"a window of stream {number}, which was not opened"
            )
        more = frames.NUMBER.unpack(payload)[0] & 0x7FFFFFFF
        try:
            self.extra += self._outgoing.more(number, more, self.streams.get(number))
        except StreamFault as fault:
            stream = self.streams.get(number)
            if stream is not None:
                self._forget(number, stream)
            self._outgoing.drop(number)
            self._patience.free()
            self._outgoing.send(frames.reset(number, fault.code))
        self._close_if_done()

    def _reset(self, number: int, _flags: int, payload: bytes) -> None:
        """RST_STREAM: section 6.4."""
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM")
        if number > self._last or not number & 1:
            raise ConnectionFault(
                frames.PROTOCOL_ERROR, f"reset of stream {number}, which was not opened"
            )
        stream = self.streams.get(number)
        if stream is not None:
            self._forget(number, stream)
            self._cut(number, by_peer=True)
        if self._outgoing.drop(number) or stream is not None:
            # A request that is opened and reset at once costs only us, and frees its place among
            # the streams (rapid reset, CVE-2023-44487).
            self._patience.free()
            self._close_if_done()


_METHODS: Mapping[int, Callable[[Requests[Any], int, int, bytes], None]] = {
    frames.WINDOW_UPDATE: Requests._window_update,
    frames.PING: Requests._ping,
    frames.SETTINGS: Requests._settings,
    frames.RST_STREAM: Requests._reset,
    frames.CONTINUATION: Requests._continuation,
    frames.GOAWAY: Requests._goaway,
    frames.PUSH_PROMISE: Requests._push_promise,
    frames.PRIORITY: Requests._priority,
}
"""What takes a frame of each kind but DATA and HEADERS."""


def _fault_of_connection_frame(number: int, name: str) -> ConnectionFault:
    """A frame of the connection that names a stream, or has a wrong size."""
    return ConnectionFault(frames.PROTOCOL_ERROR if number else frames.FRAME_SIZE_ERROR, name)


def _without_padding(data: bytes | memoryview, at: int, stop: int) -> tuple[int, int]:
    """Where the data of a padded frame begins and ends: section 6.1."""
    if stop == at or data[at] >= stop - at:
        raise ConnectionFault(frames.PROTOCOL_ERROR, "more padding than frame")
    return at + 1, stop - data[at]
