"""The client side of HTTP/2: calls to one replica over one connection, RFC 9113 with bounds on
everything.

The replica runs code of a tenant, so its frames are read as strictly as those of any stranger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from cloud_ml.gateway.answer_heads import translate_head
from cloud_ml.gateway.call_table import ReplicaCall
from cloud_ml.gateway.client_limits import ClientLimits
from cloud_ml.gateway.http2_calls import Http2Calls
from cloud_ml.net.budget import Budget
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import ConnectionFault
from cloud_ml.net.http2.headers import Blocks, Split
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.work_share import WorkShare

_DEAR = 10
"""Units of a control frame after which everything that waits is looked at again."""

_UNREAD_REPLIES = 65_536
"""Bytes of replies to control frames that may wait for a replica that does not read; then
nothing is read from it.
"""
_COSTLY = (frames.HEADERS, frames.CONTINUATION, frames.SETTINGS)
_PADDING = 512
"""Bytes that a frame of HEADERS may have beside its block."""
_PASSED_ON = 4
"""Units of a piece that is passed on by itself."""


def frame_units(kind: int, size: int) -> int:
    """The work of a frame: fields of a head and settings cost most."""
    return 1 + (size >> 4 if kind in _COSTLY else size >> 12)


class Http2Client(Http2Calls, asyncio.Protocol):
    """One connection to a replica.

    Args:
        limits: What the replica may send.
        iteration: Frames are written at the end of a turn of the loop.
        gone: Called once when no further call can be made here.
        share: The work for the replica in a turn.
        report: Called with a reason when the connection is closed because the replica broke a rule
            or a bound.
        bodies: What bodies may take.
    """

    def __init__(
        self,
        limits: ClientLimits,
        iteration: LoopIteration,
        gone: Callable[[Http2Client], None],
        *,
        share: WorkShare,
        report: Callable[[str], None],
        bodies: Budget,
    ) -> None:
        super().__init__(limits, iteration, gone, report=report, bodies=bodies)
        self._share = share
        self._heads = Blocks(
            lambda fields: translate_head(fields, limits.fields), limits.head_bytes
        )
        self._rest = b""
        self._split = Split(limits.head_bytes)
        self._settled = False
        self._deferred = False  # bytes wait for a later turn
        self._buffered = 0  # bytes that waited for it when it stopped
        self._moved = False  # a frame became whole since the last tick
        self._age = self._partial_s = self._unread_s = 0
        self._unacknowledged = 0
        self.lost = False

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class
        self.open = True
        limits = self._limits
        self._outgoing.open(self._transport)
        settings = {
            frames.ENABLE_PUSH: 0,
            frames.INITIAL_WINDOW_SIZE: limits.window,
            frames.MAX_FRAME_SIZE: limits.frame_bytes,
            frames.MAX_HEADER_LIST_SIZE: limits.head_bytes,
        }
        more = frames.window_update(0, limits.window - frames.DEFAULT_WINDOW)
        self._outgoing.send(frames.PREFACE, frames.settings(settings), more)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._leave()
        self._outgoing.close()
        self._fail_all()

    def pause_writing(self) -> None:
        """The replica does not read: requests wait, and what is written are replies to its control
        frames.

        Its answers are read all the same: it may wait with reading until they are.
        """
        self._paused = self._outgoing.paused = True
        if self._transport is not None:
            self._buffered = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._paused = self._outgoing.paused = False
        self._outgoing.go_on()
        self._go_on()
        self._update_reading()

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        unread = transport.get_write_buffer_size() - self._buffered if self._paused else 0
        if self._deferred or unread > _UNREAD_REPLIES:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def tick(self) -> None:
        """A second passed: close the connection where the replica takes too long."""
        self._control.tick()
        self._age += 1
        self._unread_s = self._unread_s + 1 if self._paused else 0
        partial = self._split.open or (bool(self._rest) and not self._deferred and not self._moved)
        self._partial_s = self._partial_s + 1 if partial else 0
        self._moved = False
        fault = self._overdue()
        if fault is not None:
            self._fault(fault)
        else:
            self._end_stalled()

    def _overdue(self) -> ConnectionFault | None:
        limits = self._limits
        if not self._settled and self._age > limits.settled_s:
            return ConnectionFault(
                frames.SETTINGS_TIMEOUT, f"no SETTINGS within {limits.settled_s} s"
            )
        if self._unread_s > limits.unread_s:
            return ConnectionFault(
                frames.ENHANCE_YOUR_CALM, f"requests left unread for {limits.unread_s} s"
            )
        if self._partial_s > limits.head_s:
            return ConnectionFault(
                frames.ENHANCE_YOUR_CALM, f"a frame or head unfinished for {limits.head_s} s"
            )
        return None

    # --- frames in ---

    def data_received(self, data: bytes) -> None:
        self._rest = self._rest + data if self._rest else data
        if not self._deferred:
            self._read_frames()

    def _read_frames(self) -> None:
        """Read as many frames as came and as the share of this turn allows."""
        data, at, end = self._rest, 0, len(self._rest)
        self._rest = b""
        try:
            while end - at >= 9 and self._transport is not None:
                high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
                size = high << 8 | low
                self._expect(size, kind, flags)
                stop = at + 9 + size
                if stop > end:
                    break
                if not self._share.spend(frame_units(kind, size)):
                    self._deferred = True
                    break
                self._frame(kind, flags, number & 0x7FFFFFFF, data[at + 9 : stop])
                self._moved = True
                at = stop
        except ConnectionFault as fault:
            self._fault(fault)
            return
        self._rest = data[at:] if at < end else b""
        if self._deferred:
            self._share.defer(self._resume)
        if self._deferred or self._paused:
            self._update_reading()

    def _resume(self) -> None:
        """A later turn: go on with what came."""
        self._deferred = False
        if self._transport is not None:
            self._read_frames()
            if not self._deferred:
                self._update_reading()

    def _expect(self, size: int, kind: int, flags: int) -> None:
        if size > self._limits.frame_bytes:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        # The size of frames that a peer may send holds for all kinds. Only data needs it.
        if kind != frames.DATA and size > self._limits.head_bytes + _PADDING:
            raise ConnectionFault(
                frames.ENHANCE_YOUR_CALM, f"a frame of {size} bytes that is no data"
            )
        # Section 3.4: a server begins with SETTINGS, and not with an acknowledgement of ours.
        if not self._settled and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ConnectionFault(frames.PROTOCOL_ERROR, "not HTTP/2")
        if self._split.open and kind != frames.CONTINUATION:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a head that was not ended")

    def _fault(self, fault: ConnectionFault) -> None:
        """Close the connection, with a reason."""
        transport, self._transport = self._transport, None
        self._rest, self.lost = b"", True
        self._report(fault.why)
        self._leave()
        self._outgoing.send(frames.goaway(0, fault.code, fault.why))
        self._outgoing.flush()
        self._outgoing.close()
        if transport is not None:
            # `close` would wait for a replica that may read nothing.
            transport.abort()
        self._fail_all()

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == frames.DATA:
            self._data(number, flags, payload)
        elif kind == frames.HEADERS:
            if flags & (frames.PADDED | frames.WITH_PRIORITY):
                payload = frames.strip_padding(payload, flags)
            self._block(number, flags, payload)
        elif kind == frames.CONTINUATION:
            self._control.spend("CONTINUATION")
            if (whole := self._split.add(number, flags, payload)) is not None:
                self._block(number, whole[0] | frames.END_HEADERS, whole[1])
        else:
            self._control_frame(kind, flags, number, payload)

    def _control_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        control = self._control
        if kind == frames.WINDOW_UPDATE:
            control.spend("WINDOW_UPDATE")
            self._window_update(number, payload)
        elif kind == frames.SETTINGS:
            control.spend("SETTINGS", _DEAR)
            self._settings(number, flags, payload)
        elif kind == frames.RST_STREAM:
            control.spend("RST_STREAM")
            self._reset(number, payload)
        elif kind == frames.PING:
            control.spend("PING")
            if number or len(payload) != 8:
                raise ConnectionFault(
                    frames.FRAME_SIZE_ERROR if not number else frames.PROTOCOL_ERROR, "PING"
                )
            # An answer to an answer would go on for ever.
            if not flags & frames.ACK:
                self._outgoing.send(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.GOAWAY:
            control.spend("GOAWAY", _DEAR)
            self._goaway(payload)
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "a push that was switched off")
        else:
            control.spend("PRIORITY or an unknown frame")

    def _window_update(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "WINDOW_UPDATE")
        if number:
            self._calls.check_known(number)
        call = self._calls.find(number)
        more = frames.NUMBER.unpack(payload)[0] & 0x7FFFFFFF
        units = self._outgoing.more(number, more, call.stream if call is not None else None)
        self._share.spend(units)

    def _settings(self, number: int, flags: int, payload: bytes) -> None:
        self._share.spend(self._outgoing.settings(number, flags, payload))
        if flags & frames.ACK:
            return
        self._settled = True
        for key, value in frames.SETTING.iter_unpack(payload):
            if key == frames.MAX_CONCURRENT_STREAMS:
                self._most = min(value, self._limits.streams)
        self._go_on()

    def _block(self, number: int, flags: int, block: bytes) -> None:
        """HEADERS: the head of an answer, an interim one, or trailers."""
        if not flags & frames.END_HEADERS:
            self._split.begin(number, flags, block)
            return
        if len(block) > self._limits.head_bytes:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, f"a head of {len(block)} bytes")
        status, passed = self._heads.read(block)  # always: the table has to follow
        call = self._calls.find(number)
        if call is None:
            self._control.spend("HEADERS of a call that is over")
            self._calls.late(number, 0)
            return
        ends = bool(flags & frames.END_STREAM)
        if call.head is not None:
            # Section 8.1: a second block of a stream is its trailers, which end it and have no status.
            if not ends or status:
                raise ConnectionFault(frames.PROTOCOL_ERROR, f"a second head on stream {number}")
            self._whole(number, call, passed)
            return
        if not status:
            raise ConnectionFault(
                frames.PROTOCOL_ERROR, f"a head without a status on stream {number}"
            )
        if status < 200:
            self._interim(number, call, status, ends=ends)
            return
        call.head = passed
        if ends:
            self._whole(number, call, b"")
        elif call.caller.streams:
            call.caller.began(passed)

    def _interim(self, number: int, call: ReplicaCall, status: int, *, ends: bool) -> None:
        if ends or status == 101:  # RFC 9113, sections 8.1 and 8.6
            raise ConnectionFault(
                frames.PROTOCOL_ERROR, f"status {status} as the answer on stream {number}"
            )
        call.interim += 1
        if call.interim > self._limits.interim:
            raise ConnectionFault(
                frames.ENHANCE_YOUR_CALM, f"more than {self._limits.interim} interim answers"
            )

    def _data(self, number: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        # Section 6.9: data of calls that are over counts in the connection's window as well.
        self._unacknowledged += size
        if self._unacknowledged > self._limits.window >> 1:
            self._outgoing.send(frames.window_update(0, self._unacknowledged))
            self._unacknowledged = 0
        call = self._calls.find(number)
        if call is None:
            self._control.spend("DATA of a call that is over")
            self._calls.late(number, size)
            return
        if call.head is None:
            raise ConnectionFault(frames.PROTOCOL_ERROR, f"data before the head on stream {number}")
        if flags & frames.PADDED:
            if not size or payload[0] >= size:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "more padding than frame")
            payload = payload[1 : size - payload[0]]
        ends = bool(flags & frames.END_STREAM)
        if payload:
            self._piece(number, call, payload)
        elif not ends:
            # It costs the replica nothing and moves no window: without a count, a flood of them is free.
            self._control.spend("empty DATA")
        if self._calls.find(number) is not call:  # it was given up meanwhile
            return
        if ends:
            self._whole(number, call, b"")
        else:
            self._acknowledge(number, call, size)

    def _piece(self, number: int, call: ReplicaCall, payload: bytes) -> None:
        call.silent_s = 0
        if call.caller.streams:
            self._share.spend(_PASSED_ON)
            call.caller.piece(payload)
            return
        room = self._calls.add_piece(call, payload)
        too_large = call.body.size > self._limits.body_bytes
        if too_large or not room:
            self._give_up(number)
            call.caller.failed(refused=False, too_large=too_large, no_room=not room)
            self._go_on()

    def _whole(self, number: int, call: ReplicaCall, trailers: bytes) -> None:
        left = self._outgoing.drop(number)
        early = left or not call.request_sent  # answered before it had the whole request
        self._calls.end(number, for_both=not early)
        if early:
            # Section 8.1: the answer counts, and the rest of the request is not sent.
            self._outgoing.send(frames.reset(number, frames.NO_ERROR))
        self._control.earn()
        assert call.head is not None
        call.caller.ended(call.head, call.body.pieces(), call.body.size, trailers)
        if self._calls.queued or not self.open:
            self._go_on()

    def _reset(self, number: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "RST_STREAM")
        self._calls.check_known(number)
        call = self._calls.find(number)
        if call is None:
            return
        self._outgoing.drop(number)
        self._calls.end(number, for_both=False)
        # Section 8.7: this code says that nothing was done; an answer that has begun says
        # otherwise.
        refused = frames.NUMBER.unpack(payload)[0] == frames.REFUSED_STREAM and call.head is None
        call.caller.failed(refused=refused)
        self._go_on()

    def _goaway(self, payload: bytes) -> None:
        """The replica takes nothing new: what it has not begun is tried elsewhere."""
        if len(payload) < 8:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "GOAWAY")
        last = frames.NUMBER.unpack_from(payload)[0] & 0x7FFFFFFF
        self._leave()
        for number, call in self._calls:
            # Section 6.8: the replica has not begun these.
            if number > last:
                self._outgoing.drop(number)
                self._calls.end(number, for_both=False)
                call.caller.failed(refused=True)
        self._go_on()
