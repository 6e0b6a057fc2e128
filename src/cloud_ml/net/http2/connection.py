"""One HTTP/2 connection of a client: its transport, and its frames as they come; what they mean
say ``Requests``.
"""

import asyncio
from typing import Generic, TypeVar, cast

from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.body_reader import DirectBodyReader
from cloud_ml.net.http2.frames import ConnectionFault
from cloud_ml.net.http2.outgoing import Outgoing
from cloud_ml.net.http2.requests import LAST, Requests
from cloud_ml.net.http2.service import Service
from cloud_ml.net.http2.stream import Limits
from cloud_ml.net.http2.timeouts import ConnectionTimeouts
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.tuning import BYTES_SHIFT, DIRECT_BYTES, FAREWELL_S, NOT_COUNTED, SLICE

H = TypeVar("H")
MANY_BYTES = 16_384
"""Bytes of one read that are counted as work."""
WORTH = 1_024
"""Bytes of a frame that has not come whole from which on they are taken as they are."""


class Http2Connection(asyncio.Protocol, Generic[H]):
    """RFC 9113 as a server of unary requests.

    What a peer can make large is bounded by ``Limits``: frames, heads, bodies, streams, resets, and
    what waits to be written (nothing is read while the peer does not read). What its frames cost in
    a turn is bounded by the share of ``iteration``: the rest waits for a later turn, and nothing is
    read meanwhile.
    """

    def __init__(self, service: Service[H], limits: Limits, iteration: LoopIteration) -> None:
        self._limits = limits
        self._share = iteration.share
        self._outgoing = Outgoing(iteration, limits.unread_budget)
        self._patience = ConnectionTimeouts(limits)
        self._requests = Requests(service, limits, self._outgoing, self._patience)
        self._bodies = self._requests.bodies
        self._rest = b""
        self._due: tuple[int, int, int] | None = (
            None  # of a frame of data: stream, flags, bytes to come
        )
        self._begun = False
        self._farewell_s: int | None = None  # since the last answer is out
        self._paused = False
        self._deferred = False  # frames wait for a later turn
        self._transport: asyncio.Transport | None = None

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class
        self._outgoing.open(self._transport, self._end)
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
            # RFC 9113, section 6.9.2: SETTINGS changes the windows of streams only. The window of
            # the connection begins with 65,535 bytes and grows by WINDOW_UPDATE alone.
            frames.window_update(0, limits.window - frames.DEFAULT_WINDOW),
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest, self._deferred = b"", False
        self._outgoing.close()
        self._requests.drop()

    def _end(self) -> None:
        """The last answer is out: nothing is sent any more, and what comes is thrown away."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        # To close would have the kernel answer a request that is on its way by RST, which can destroy
        # GOAWAY before the peer reads it. From GOAWAY a client knows that this request was not
        # served, and asks elsewhere (RFC 9113, section 6.8).
        self._outgoing.close()
        self._requests.drop()
        # With something in `_rest`, `data_received` looks whether the connection has ended.
        self._due, self._rest, self._farewell_s = None, b"\0", 0
        self._deferred = False
        if transport.can_write_eof():  # not with TLS
            transport.write_eof()
        transport.resume_reading()

    def pause_writing(self) -> None:
        """The peer does not read: take nothing more from it, and send it no data that can wait."""
        # Else answers to its PING and SETTINGS would fill our memory (CVE-2019-9512,
        # CVE-2019-9515).
        self._paused = self._outgoing.paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = self._outgoing.paused = False
        self._outgoing.go_on()
        self._read_again()

    def _read_again(self) -> None:
        transport = self._transport
        if transport is not None and not (self._paused or self._deferred or transport.is_closing()):
            transport.resume_reading()

    @property
    def busy(self) -> bool:
        """Whether a request is under way; who only listens does not count."""
        return self._requests.busy

    def leave(self) -> None:
        """Take no new request; close when the last answer is out."""
        self._requests.leave()

    def give_way(self) -> bool:
        """Close if no request is under way; false otherwise."""
        if self._requests.streams or self._outgoing.waiting:
            return False
        self.leave()
        if self._transport is not None:  # its place is needed now
            self._transport.close()
        return True

    def tick(self, _now: float) -> None:
        """A second passed: cut who is too slow."""
        requests, outgoing = self._requests, self._outgoing
        if self._farewell_s is not None and self._transport is not None:
            self._farewell_s += 1
            if self._farewell_s > FAREWELL_S:
                self._transport.close()  # after what is still to be written
        stuck = self._paused or (bool(outgoing.waiting) and not outgoing.moved)
        outgoing.moved = False
        # Byte 3 of a frame is its type. DATA (0) does not count here: bodies have their own limit.
        begun = not self._deferred and self._rest[3:4] not in (b"", b"\0")
        half = not requests.settled or requests.split.open or begun
        try:
            self._patience.second(half=half, stuck=stuck)
        except ConnectionFault as fault:
            self._fail(fault)
            # `close` waits until the peer has read what is buffered, and this one reads nothing.
            if self._paused and self._transport is not None:
                self._transport.abort()
            return
        requests.second()
        if self._patience.idle and not requests.streams and not outgoing.waiting:
            self.leave()

    # --- frames in ---

    def data_received(self, data: bytes) -> None:
        if self._rest:
            if self._farewell_s is not None:
                self._charge_bytes(len(data))
                return
            data = self._rest + data
            if self._deferred:
                self._rest = data
                return
        self._patience.quiet = 0
        try:
            at = 0 if self._begun and self._due is None else self._begin(data)
            if not self._begun:
                self._rest = data
                return
            at, left = self._read_frames(data, at)
        except ConnectionFault as fault:
            self._fail(fault)
            return
        self._rest = data[at:] if at < len(data) else b""
        if (left < SLICE - NOT_COUNTED or at > MANY_BYTES) and self._share_is_used(left, at):
            self._defer()
        elif self._due is not None and self.long:
            self._go_straight()

    def _begin(self, data: bytes) -> int:
        """Read what comes before the first frame: the preface, or the rest of long data. Returns
        where the frames begin.
        """
        return self._preface(data) if self._due is None else self._go_on(data, *self._due)

    def _read_frames(self, data: bytes, at: int) -> tuple[int, int]:
        """Read whole frames from ``at`` on, and the part of data that ends them. Returns where the
        next frame begins, and how much of the slice is left.
        """
        requests, end, left = self._requests, len(data), SLICE
        while end - at >= 9:
            high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
            size = high << 8 | low
            stop = at + 9 + size
            if stop > end and size <= self._limits.frame_bytes:
                # The frame has not come whole. Only data may be long.
                if kind == frames.DATA:
                    at = self._part(number & LAST, flags, data, at + 9, stop)
                else:
                    frames.bound(size)
                break
            if size > self._limits.frame_bytes or requests.split.open:
                self._check_frame(kind, size)
            # Section 4.1: the bit before the number of a stream is reserved and ignored (`& LAST`).
            if kind == frames.DATA:
                requests.data(number & LAST, flags, data, at + 9, stop)
            elif kind == frames.HEADERS:
                left -= 1
                # ``known`` takes nearly every gRPC call: its body follows (no END_STREAM), its
                # block came before. All else is read in full.
                if flags != frames.END_HEADERS or not requests.known(number, data[at + 9 : stop]):
                    requests.headers(number & LAST, flags, data[at + 9 : stop])
            else:
                requests.other(kind, number & LAST, flags, data[at + 9 : stop])
            at = stop
            if requests.extra:
                left -= requests.extra
                requests.extra = 0
            if left <= 0 and (left := self._share.next_slice(SLICE - left)) <= 0:
                break
        return at, left

    def _share_is_used(self, left: int, size: int) -> bool:
        """Count a read of ``size`` bytes that has so much left of its slice; whether it was to
        stop there.
        """
        if not left:
            self._share.charge(size >> BYTES_SHIFT)
            return True
        return (
            not self._share.next_slice(SLICE - left + (size >> BYTES_SHIFT)) and size > MANY_BYTES
        )

    def _defer(self) -> None:
        """Go on with what came in a later turn, and read nothing until then."""
        self._deferred = True
        if self._transport is not None:
            self._transport.pause_reading()
        self._share.defer(self._resume)

    def _resume(self) -> None:
        if not self._deferred:  # the connection is lost
            return
        self._deferred = False
        if self._transport is not None and not self._transport.is_closing():
            if self._farewell_s is None:
                data, self._rest = self._rest, b""
                if data:
                    self.data_received(data)
            self._read_again()

    # --- long bodies: see ``DirectBodyReader`` ---

    def _go_straight(self) -> None:
        transport = self._transport
        if (
            # If the protocol is another one, a `DirectBodyReader` stands between already.
            transport is not None
            and not transport.is_closing()
            and transport.get_protocol() is self
        ):
            DirectBodyReader(self, transport)

    @property
    def long(self) -> bool:
        """Whether much of the body is still to come to which the frame belongs that has not come
        whole.
        """
        return self._due is not None and self._bodies.lacks(self._due[0]) >= DIRECT_BYTES

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
            self._requests.whole(number)
        self._charge_bytes(size)

    def passing(self, data: memoryview) -> None:
        """Take bytes from memory that is used again: pieces of bodies go where they belong, all
        else is copied.
        """
        at = 0
        if not self._rest and not self._requests.split.open:
            try:
                at = self._pieces(data)
            except ConnectionFault as fault:
                self._fail(fault)
                return
        self._patience.quiet = 0
        if at < len(data):
            self.data_received(bytes(data[at:]))
        self._charge_bytes(at)

    def _charge_bytes(self, size: int) -> None:
        """Count bytes that were put to bodies; where this turn has read enough, the next ones
        wait.
        """
        self._share.charge(size >> BYTES_SHIFT)
        if self._share.left <= 0 and not self._deferred:
            self._defer()

    def _pieces(self, data: memoryview) -> int:
        """Take what goes to bodies, and heads that are known, up to the first frame that is
        something else.
        """
        requests, at, end, most, left = (
            self._requests,
            0,
            len(data),
            self._limits.frame_bytes,
            SLICE,
        )
        if self._due is not None:
            at = self._go_on(data, *self._due)
        while left and end - (at := self._bodies.add_frames(data, at)) >= 9:
            left -= 1
            high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
            size = high << 8 | low
            begin, stop = at + 9, at + 9 + size
            if stop > end or size > most:
                if kind == frames.DATA and size <= most:
                    at = self._part(number & LAST, flags, data, begin, stop)
                break
            if kind == frames.DATA and (
                not flags or (flags == frames.END_STREAM and self._bodies.lacks(number))
            ):
                requests.data(number & LAST, flags, data, begin, stop)
            elif (
                kind != frames.HEADERS
                or flags != frames.END_HEADERS
                or not requests.known(number, bytes(data[begin:stop]))
            ):
                break
            at = stop
        return at

    # --- frames in, one by one ---

    def _check_frame(self, kind: int, size: int) -> None:
        """Refuse a frame that is too large, or that comes within a head."""
        if size > self._limits.frame_bytes:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        # Section 6.10: while a block of headers is open, no frame of any kind or stream may come
        # between, since the tables of both sides would differ.
        if self._requests.split.open and kind != frames.CONTINUATION:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a head that was not ended")

    def _part(self, number: int, flags: int, data: bytes | memoryview, at: int, stop: int) -> int:
        """Take what has come of a frame of data, so that it is not copied to what comes; where
        to read on.
        """
        requests = self._requests
        stream = requests.streams.get(number)
        known = requests.passed_over(number) if stream is None else not stream.dispatched
        # The first byte of a padded frame says how many of its last bytes are padding: it is read
        # whole.
        few = len(data) - at < WORTH
        if few or requests.split.open or flags & frames.PADDED or not known:
            return at - 9
        requests.data(number, 0, data, at, len(data))
        self._due = number, flags, stop - len(data)
        return len(data)

    def _go_on(self, data: bytes | memoryview, number: int, flags: int, due: int) -> int:
        """The rest of such a frame; where the next one begins."""
        stop = min(due, len(data))
        self._due = (number, flags, due - stop) if stop < due else None
        self._requests.data(number, flags if stop == due else 0, data, 0, stop)
        return stop

    def _preface(self, data: bytes) -> int:
        """Where the first frame begins, when it is known to be SETTINGS: section 3.4."""
        expected = frames.PREFACE
        size = len(expected)
        if not expected.startswith(data[:size]) or (
            len(data) > size + 3 and data[size + 3] != frames.SETTINGS
        ):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "not HTTP/2")
        self._begun = len(data) > size + 3
        return size

    def _fail(self, fault: ConnectionFault) -> None:
        self._rest, self._deferred = b"", False
        self._requests.fail(fault)
        if self._transport is not None:
            self._transport.close()
