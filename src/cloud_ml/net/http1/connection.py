"""One HTTP/1.1 connection of a client: bytes in, whole requests out, answers back in the order
of the requests.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from cloud_ml.net.budget import COUNTED, NO_ROOM
from cloud_ml.net.http1.calls import CONTINUE, HttpCall, rest_of
from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.compressed_body import inflate
from cloud_ml.net.http1.counted_bytes import CountedBytes
from cloud_ml.net.http1.head_reader import HeadReader
from cloud_ml.net.http1.heads import Head, HeadFault, Heads
from cloud_ml.net.http1.incoming_body import IncomingBody
from cloud_ml.net.http1.limits import Limits
from cloud_ml.net.http1.paced_writer import PacedWriter
from cloud_ml.net.http1.service import Service
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.pieces import Pieces, gather_pieces
from cloud_ml.net.tuning import BYTES_SHIFT, FAREWELL_S, NOT_COUNTED, SLICE

H = TypeVar("H")

REQUEST_UNITS = 8
"""Units of work of a request, or of what is none."""
NEW_HEAD_UNITS = 16
"""Units of a head that is not the same as the one before, beside one for each 16 of its bytes."""
LINE_UNITS = 2
"""Units of a line between chunks."""


class Http1Connection(asyncio.Protocol, Generic[H]):
    """RFC 9112 as a server. ``heads`` may be shared by all connections of one service.

    What its requests cost in a turn is bounded by the share of ``iteration``: the rest waits for a
    later turn.
    """

    def __init__(
        self,
        service: Service[H],
        heads: Heads[H],
        limits: Limits,
        iteration: LoopIteration,
        clock: Clock,
    ) -> None:
        self._service = service
        self._reader = HeadReader(heads, limits)
        self.limits = limits
        self._iteration = iteration
        self._share = iteration.share
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._calls: deque[HttpCall] = deque()
        self._rest = b""
        self._body: IncomingBody[H] | None = None  # of a request that is not whole
        self._bytes = CountedBytes(limits)
        self._weight = 0  # bytes of the bodies that are not answered
        self._since = clock.now
        self._armed = False
        self._long: PacedWriter | None = (
            None  # what writes long answers; Python slows objects of over 30 attributes
        )
        self._full = False  # the peer does not read
        self._held = False  # nothing is taken from the peer
        self._deferred = False  # because this turn's work is done
        self._units = 0  # of work, before the share of this turn is asked for more
        self._half_closed = False  # the peer sends no more
        self._ended = False  # no request is read any more; what comes is thrown away
        self.open = False
        self.leaving = False

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._bytes.release()
        self._body = None
        self._calls.clear()
        if self._long is not None:
            self._long.close()
        self._rest = b""

    def eof_received(self) -> bool:
        """The peer sends no more; what it asked is answered still."""
        self._drop_body()
        self._rest, self._half_closed = b"", True
        self._since = self._clock.now
        self._finish()
        # asyncio closes the transport unless this is true.
        return self.open and bool(self._calls or self._long)

    def pause_writing(self) -> None:
        self._full = True
        if self._long is not None:
            self._long.paused = True
        self._since = self._clock.now
        # Each further request of a peer that reads no answers would only add to what waits for it.
        self._hold()

    def resume_writing(self) -> None:
        self._full = False
        if self._long is not None:
            self._since = self._clock.now
            self._long.resume()
        self._recount_unread()
        self._go_on()

    @property
    def date(self) -> bytes:
        """The line of an answer's head that tells the time."""
        return self._clock.date

    def leave(self) -> None:
        """Answer what is under way and close.

        The next request of a caller who was here a moment ago may be on its way: it is answered,
        and told that the connection closes. Closing at once would fail it, and a client may not
        repeat a POST.
        """
        self.leaving = True
        if self._idle and self._clock.now - self._since > FAREWELL_S:
            self._close()

    def give_way(self) -> bool:
        """Close if no request is under way; false otherwise."""
        if not self._idle or self._ended:
            return False
        self._close()
        return True

    @property
    def _idle(self) -> bool:
        return not self._calls and not self._long and self._body is None and not self._rest

    def tick(self, now: float) -> None:
        """Cut who is too slow: called every second."""
        self._recount_unread()
        if self._deferred and not self._ended:  # it waits for us
            self._since = now
        quiet = now - self._since
        if self.leaving and self._idle and not (self._ended or self._full) and quiet > FAREWELL_S:
            self._close()
        elif quiet > self._most_quiet_s() and self._transport is not None:
            # RFC 9112, section 9.2: without an outstanding request no bytes are a valid response.
            # So an idle peer is told nothing.
            if (self._rest or self._body) and not self._full and not self._ended:
                self._refuse(HeadFault(408, "the request did not come in time"))
            else:
                self._transport.abort()

    def _most_quiet_s(self) -> float:
        """Seconds for which nothing may come of what is awaited now."""
        body = self._body
        return self.limits.most_quiet_s(
            ended=self._ended,
            full=self._full,
            calls=bool(self._calls),
            half_closed=self._half_closed,
            body_came=None if body is None else body.came,
            head_begun=bool(self._rest),
        )

    # --- requests in ---

    def data_received(self, data: bytes) -> None:
        # RFC 9112, section 9.6: closing a socket with unread bytes makes the kernel send RST, which
        # can destroy the last answer before the peer reads it. So what still comes is read.
        if self._ended:
            self._share.charge(len(data) >> BYTES_SHIFT)
            if self._share.left <= 0:
                self._defer()
            return
        size = len(data)
        if self._body is None:
            if self._rest:
                data = self._rest + data
            else:
                self._since = self._clock.now
        self._units = SLICE - (size >> BYTES_SHIFT)
        try:
            if self._body is not None:
                data = self._feed(self._body, data)
            if data:
                self._requests(data)
        except HeadFault as fault:
            self._refuse(fault)
        if self._units < SLICE - NOT_COUNTED:
            self._share.charge(SLICE - self._units)
            if self._units <= 0 and self._share.left <= 0 and not self._deferred:
                self._defer()

    def _defer(self) -> None:
        """Go on with what came in a later turn, and read nothing until then."""
        self._deferred = True
        self._hold()
        self._share.defer(self._resume)

    def _resume(self) -> None:
        self._deferred = False
        self._go_on()

    def _requests(self, data: bytes) -> None:
        """Read as many requests as came; keep what is none yet."""
        at, end, limits, units = 0, len(data), self.limits, self._units
        while at < end:
            if self._ended:
                break
            if (
                self._full
                or len(self._calls) >= limits.pipelined
                or self._weight > limits.body_bytes
            ):
                self._hold()
                break
            if units <= 0 and (units := self._share.next_slice(SLICE - units)) <= 0:
                units = SLICE  # all of it is counted
                self._defer()
                break
            units -= REQUEST_UNITS
            if data[at] == 13:  # an empty line after a body: section 2.2
                if end - at == 1:
                    break
                if data[at + 1] == 10:
                    at += 2
                    continue
            text, known = self._reader.last
            # `text` ends with the empty line, so an equal beginning is the whole head.
            if known is not None and data.startswith(text, at):
                stop = at + len(text)
            else:
                known, stop = self._reader.read(data, at)
                units -= NEW_HEAD_UNITS + (max(0, stop - at) >> 4)
                if known is None:
                    break
            head, meaning, length = known
            # Nothing of the request is copied or kept where it came whole; `CHUNKED` is below 0.
            if 0 <= length <= end - stop:
                at = stop + length
                if length > limits.body_bytes:
                    raise HeadFault(413, f"a body of more than {limits.body_bytes} bytes")
                self._whole(head, meaning, data[stop:at])
                continue
            self._begin(head, meaning, length)
            at = end
            self._units = units
            rest = self._feed(self._body, data[stop:]) if self._body is not None else b""
            units = self._units
            if rest:
                data, at, end = rest, 0, len(rest)
        self._units = units
        if at:
            self._since = self._clock.now
        self._rest = data[at:] if not self._ended else b""

    def _begin(self, head: Head, meaning: H, length: int) -> None:
        """The head of a request whose body is still to come."""
        if length > self.limits.body_bytes:
            raise HeadFault(413, f"a body of more than {self.limits.body_bytes} bytes")
        self._rest = b""
        refused = self.limits.refused
        if refused is not None and head.refusal is None and refused(meaning):
            # The body is not read, so where the next request begins is unknown: this is the last.
            self._service.serve(self._last_call(head), meaning, b"")
            return
        self._body = IncomingBody(head, meaning, length, self.limits.body_bytes)
        self._since = self._clock.now
        # RFC 9110, section 10.1.1: a body that came with its head needs no 100 Continue. It waits
        # behind the answers of earlier requests, as every answer does.
        if head.expects:
            interim = HttpCall(self, head, 0.0)
            interim.answer, interim.done, interim.close = CONTINUE, True, False
            self._calls.append(interim)
            self.answered()

    def _feed(self, body: IncomingBody[H], data: bytes) -> bytes:
        """Take more of a body; what comes after it is given back.

        Raises:
            HeadFault: All bodies together leave no room for it.
        """
        # Counted before it is kept: the budget holds for all connections together.
        size = min(len(data), body.missing)
        body.came += size
        self._bytes.count(size)
        if self.limits.budget.full:
            raise HeadFault(503, NO_ROOM)
        chunks = body.chunks
        if chunks is None:
            rest = body.add(data)
        else:
            rest = chunks.feed(data, max(self._units, self._share.left) // LINE_UNITS)
            self._units -= chunks.lines * LINE_UNITS
            if chunks.behind:
                self._defer()
        if rest is None:
            return b""
        content = gather_pieces(body.parts) if self.limits.in_pieces else b"".join(body.parts)
        self._units -= len(content) >> BYTES_SHIFT  # copied once more
        self._drop_body()
        self._whole(body.head, body.meaning, content)
        return rest

    # --- what bodies take ---

    def count_unread(self, size: int) -> None:
        """So many bytes of answers wait for the peer, or, below zero, do so no more."""
        self._bytes.count_unread(size)

    def _recount_unread(self) -> None:
        """Count what still waits for the peer."""
        if self._bytes.unread and not self._armed and self._transport is not None:
            buffered = self._transport.get_write_buffer_size()
            self._bytes.recount_unread(self._calls, self._long, buffered)

    def _drop_body(self) -> None:
        """Nothing is read of a body any more."""
        if self._body is not None:
            self._bytes.count(-self._body.came)
            self._body = None

    def _recount(self, call: HttpCall, size: int) -> None:
        """The body of a call is larger than what came."""
        before = call.size if call.size >= COUNTED else 0
        self._bytes.count((size if size >= COUNTED else 0) - before)
        self._weight += size - call.size
        call.size = size

    def _whole(self, head: Head, meaning: H, body: bytes | Pieces) -> None:
        """A request is complete."""
        call = HttpCall(self, head, self._iteration.time() + self.limits.answer_s)
        size = call.size = len(body)
        self._weight += size
        if size >= COUNTED:
            self._bytes.count(size)
        self._calls.append(call)
        # RFC 9112, section 9.6: nothing is read after the request that closes the connection.
        if head.close or self.leaving:
            self._ended = call.close = True
        if head.refusal is not None:
            call.refuse(head.refusal.status, str(head.refusal))
            return
        if size >= COUNTED and self.limits.budget.full:
            call.refuse(503, NO_ROOM)
            return
        if head.encoding and body:
            self._inflate(call, meaning, body)
            return
        self._service.serve(call, meaning, body)

    def _inflate(self, call: HttpCall, meaning: H, body: bytes | Pieces) -> None:
        """Serve a compressed request: a long one takes several turns."""
        inflate(
            call,
            body,
            self.limits,
            recount=self._recount,
            defer=self.defer,
            serve=lambda content: self._service.serve(call, meaning, content),
        )

    def defer(self, work: Callable[[], None], units: int) -> None:
        """Count work that was done in this turn, and call ``work`` in a later one."""
        self._share.charge(units)
        self._share.defer(work)

    def _refuse(self, fault: HeadFault) -> None:
        """Answer what breaks the rules, after what was asked before, and end."""
        call = self._last_call(Head("GET", "/", {}, old=False))
        call.refuse(fault.status, str(fault))

    def _last_call(self, head: Head) -> HttpCall:
        """A call after which nothing is read."""
        self._ended = True
        self._drop_body()
        self._rest = b""
        call = HttpCall(self, head, 0.0)
        call.close = True
        self._calls.append(call)
        return call

    def _hold(self) -> None:
        if not self._held and self._transport is not None and self.open:
            self._held = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Read again, first what came before."""
        if (
            not self._held
            or self._full
            or self._deferred
            or not self.open
            or self._transport is None
        ):
            return
        self._held = False
        self._transport.resume_reading()
        behind = self._body is not None and self._body.behind
        # `Chunks` keeps its own rest: `data` is empty where only that waits.
        if (self._rest or behind) and not self._ended:
            data, self._rest = self._rest, b""
            self.data_received(data)

    # --- answers out ---

    def answered(self) -> None:
        """A call has its answer: it is written at the end of this turn, if those before have
        theirs.
        """
        if not self._armed:
            self._armed = True
            self._iteration.write(self._flush)

    def _flush(self) -> None:
        self._armed = False
        # The head of a long answer is out and its body is not: nothing may come between.
        if self._long is not None and self._long.size:
            return
        calls, close = self._calls, False
        parts: list[bytes] = []
        # RFC 9112, section 9.3.2: answers of pipelined requests go out in the order of the requests.
        while calls and calls[0].done:
            call = calls.popleft()
            parts.append(call.answer)
            self._weight -= call.size
            if call.size >= COUNTED:
                self._bytes.count(-call.size)
            close = close or call.close
            if self._long is not None and self._long.add(rest_of(call)):
                break
        if not self.open or self._transport is None:
            return
        if parts:
            self._since = self._clock.now
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
            if self._bytes.unread:
                self._recount_unread()
        if self._long is not None:
            close = self._write_long(self._long, close=close)
        if close or (self.leaving and not self._rest):
            self._finish()
        elif self._held:
            self._go_on()

    def begin_long(self) -> None:
        """An answer is there that goes out turn by turn."""
        if self._long is None:
            self._long = PacedWriter(self._share, self._long_written)
            self._long.paused = self._full

    def _write_long(self, long: PacedWriter, *, close: bool) -> bool:
        """Begin with a long answer; whether the connection ends now."""
        long.closing = close or long.closing
        if long.size and self._transport is not None:
            long.begin(self._transport)
        return long.closing and not long.size

    def _long_written(self) -> None:
        """A long answer is out: those behind it follow."""
        self._since = self._clock.now
        self._recount_unread()
        self.answered()

    def _finish(self) -> None:
        """End in order when the last answer is out: what is on its way to us must not destroy
        it.
        """
        if (
            self._calls
            or self._long
            or self._body is not None
            or not self.open
            or self._transport is None
        ):
            return
        self._ended = True
        self._since = self._clock.now
        if self._held:
            self._held = False
            self._transport.resume_reading()
        # Half of a close: the peer sees the end of the answers, and what it still sends is read and
        # dropped, until it closes or for `linger_s`.
        if not self._transport.can_write_eof():  # TLS
            self._transport.close()
        elif not self._transport.is_closing():
            self._transport.write_eof()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
