"""The streams of a connection: how their requests end, and the way out of their answers."""

from collections.abc import Callable
from typing import Generic, TypeVar

from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.bodies import Bodies
from cloud_ml.net.http2.frames import ConnectionFault
from cloud_ml.net.http2.outgoing import EMPTY, Outgoing, Sized
from cloud_ml.net.http2.service import Service
from cloud_ml.net.http2.stream import Limits, Received, Stream
from cloud_ml.net.http2.timeouts import ConnectionTimeouts
from cloud_ml.net.pieces import Body

H = TypeVar("H")
CUT_SHORT_KEPT = 1_000
"""Streams that ended before their request was whole, and whose peer may not know it yet."""


class StreamTable(Generic[H]):
    """Streams by their number, from the side of the service: see ``Answers``. ``Requests`` opens
    them, as the frames of the peer say; a subclass, since a call between the two would be paid for
    each request.

    ``streams`` are those that were not answered yet.
    """

    def __init__(
        self, service: Service[H], limits: Limits, outgoing: Outgoing, patience: ConnectionTimeouts
    ) -> None:
        self._service = service
        self._limits = limits
        self._outgoing = outgoing
        self._patience = patience
        self._lengths: dict[int, int] = {}  # what is still to come of bodies whose heads tell it
        self.streams: dict[int, Stream[H]] = {}
        self.bodies = Bodies(limits, service.length, self.streams, outgoing)
        self._last = 0
        self._cut_short: dict[int, bool] = {}  # whether the peer reset it
        self._passed_over: dict[int, int] = {}  # bytes of these that came for nothing
        self._leaving = False

    @property
    def busy(self) -> bool:
        """Whether a request is under way; who only listens does not count."""
        return bool(self._outgoing.waiting) or any(
            stream.sink is None for stream in self.streams.values()
        )

    def leave(self) -> None:
        """Take no new request; close when the last answer is out."""
        if not self._leaving:
            self._leaving = True
            self._outgoing.send(frames.goaway(self._last, frames.NO_ERROR))
        self._close_if_done()

    def second(self) -> None:
        """A second passed: give up what does not become whole."""
        for number in [number for number, stream in self.streams.items() if self._too_slow(stream)]:
            self._forget(number, self.streams[number])
            self._outgoing.send(frames.reset(number, frames.CANCEL))
        for number in self._outgoing.overdue(self._limits.unread_s):
            self._give_up_answer(number)

    def fail(self, fault: ConnectionFault) -> None:
        """Tell the peer what it did, and nothing after that."""
        self._leaving = True
        self._outgoing.send(frames.goaway(self._last, fault.code, fault.why))
        self._outgoing.flush()
        self._outgoing.close()
        self.drop()  # nobody gets these answers

    def drop(self) -> None:
        """The connection is gone, and its requests with it."""
        self.streams.clear()
        self._lengths.clear()
        self.bodies.drop()

    def _too_slow(self, stream: Stream[H]) -> bool:
        if stream.dispatched or stream.sink is not None:
            return False
        stream.age += 1
        return stream.age > self._limits.body_s

    def _close_if_done(self) -> None:
        if self._leaving and not self.busy:
            self._outgoing.hang_up()

    def _full(self) -> bool:
        """Whether no further request can be taken now."""
        outgoing, limits = self._outgoing, self._limits
        under_way = len(self.streams) + outgoing.waiting
        return self._leaving or under_way >= limits.streams or outgoing.held > limits.unread_bytes

    # --- streams that are over ---

    def _give_up(self, number: int, stream: Stream[H], code: int) -> None:
        """A fault that costs the stream and not the connection: section 5.4.2."""
        # Counted as a reset by the peer would be: faults that make us reset a stream free its place
        # among the streams as well (MadeYouReset, CVE-2025-8671).
        self._patience.free()
        self._forget(number, stream)
        self._outgoing.send(frames.reset(number, code))
        self._close_if_done()

    def _forget(self, number: int, stream: Stream[H]) -> None:
        self.bodies.release(stream)
        if stream.sink is not None:
            self.bodies.hold(number, 0)
            self.bodies.resume(number)
        self._lengths.pop(number, None)
        del self.streams[number]
        if not stream.dispatched:
            self._cut(number)

    def passed_over(self, number: int) -> bool:
        """Whether what still comes on a stream is thrown away."""
        return number in self._cut_short

    def _is_tolerated(self, number: int) -> bool:
        """Whether what comes on a stream that is over costs at most the rest of its answer:
        section 5.1.
        """
        by_peer = self._cut_short.get(number, False)
        if by_peer or self._outgoing.drop(number):
            self._patience.free()
            self._outgoing.send(frames.reset(number, frames.STREAM_CLOSED))
            self._close_if_done()
            return True
        return number in self._cut_short

    def _cut(self, number: int, *, by_peer: bool = False) -> None:
        """Pass over what still comes on a stream; from a peer that reset it itself nothing may
        come.
        """
        self._cut_short[number] = by_peer
        if len(self._cut_short) > CUT_SHORT_KEPT:
            oldest = next(iter(self._cut_short))
            del self._cut_short[oldest]
            self._passed_over.pop(oldest, None)

    # --- answers out ---

    def waits(self, number: int) -> bool:
        """Whether who asked on this stream still waits for the answer."""
        return number in self.streams

    def answer(self, number: int, head: bytes, body: Sized = EMPTY, trailers: bytes = b"") -> None:
        """Send a whole answer: a block of headers, a body in pieces, a block of trailers.

        With no body, ``head`` alone ends the stream. An answer to who gave up goes nowhere.
        """
        stream = self.streams.pop(number, None)
        if stream is None:
            return
        if self._patience.count:
            self._patience.count -= 1
        if stream.held:
            self.bodies.release(stream)
        self._outgoing.answer(number, stream, head, body, trailers)
        if self._leaving:
            self._close_if_done()

    def respond(self, number: int, head: bytes, body: Body) -> None:
        """The same without trailers: the last byte of the body ends the stream."""
        stream = self.streams.pop(number, None)
        if stream is None:
            return
        if self._patience.count:
            self._patience.count -= 1
        if stream.held:
            self.bodies.release(stream)
        self._outgoing.message(number, stream, head, body)
        if self._leaving:
            self._close_if_done()

    # --- bodies and answers piece by piece ---

    def listen(self, number: int, body: Received) -> None:
        """Give a body that came whole to who takes it piece by piece."""
        stream = self.streams[number]
        sink = stream.sink = stream.sink or self._service.sink(self, number, stream.head)
        if sink is not None:
            sink.data(bytes(body), ended=True)

    def begin(self, number: int, head: bytes) -> None:
        """The head of an answer that comes in pieces."""
        if number in self.streams:
            self._outgoing.begin(number, head)

    def hold_body(self, number: int, size: int) -> bool:
        """Count a whole body that has become so large; False where all connections together keep
        too many bytes.
        """
        stream = self.streams.get(number)
        return stream is None or self.bodies.recount_whole(stream, size)

    def hold(self, number: int, size: int) -> bool:
        """Count bytes that the sink of a stream keeps now; False where all connections together
        keep too many.
        """
        return number not in self.streams or self.bodies.hold(number, size)

    def push(self, number: int, data: bytes, unread_bytes: int = 0) -> None:
        """A piece of an answer. A caller is given up that leaves more unread: ``unread_bytes``
        and this piece.
        """
        stream = self.streams.get(number)
        if stream is None:
            return
        most = max(self._limits.pushed_bytes, unread_bytes + len(data) if unread_bytes else 0)
        self._outgoing.push(number, stream, data)
        if self._outgoing.holds(
            number
        ) > most or self._outgoing.held > self._limits.unread_bytes + len(data):
            self._give_up_answer(number)

    def _give_up_answer(self, number: int) -> None:
        """Drop an answer that its caller does not read."""
        self._outgoing.drop(number)
        stream = self.streams.get(number)
        if stream is not None:
            self._forget(number, stream)
        self._outgoing.send(frames.reset(number, frames.ENHANCE_YOUR_CALM))
        self._close_if_done()

    def unread(self, number: int) -> int:
        """Bytes of an answer for which the caller's windows have no room."""
        return self._outgoing.holds(number)

    def when_read(self, number: int, resume: Callable[[], None]) -> None:
        """Call ``resume`` in a later turn, once there are none."""
        self._outgoing.when_out(number, resume)

    def pause(self, number: int) -> None:
        """Let the caller send no more of a body than its window, until ``resume``."""
        if number in self.streams:
            self.bodies.pause(number)

    def resume(self, number: int) -> None:
        """Let the caller send on."""
        self.bodies.resume(number)

    def defer(self, resume: Callable[[], None], units: int) -> None:
        """Count work that was done in this turn, and call ``resume`` in a later one."""
        self._outgoing.defer(resume, units)

    def finish(self, number: int, trailers: bytes) -> None:
        """The end of such an answer."""
        stream = self.streams.get(number)
        if stream is None:
            return
        self._forget(number, stream)
        self._outgoing.finish(number, trailers)
        if not stream.dispatched and not self._outgoing.holds(number):
            self._outgoing.send(frames.reset(number, frames.NO_ERROR))
        self._close_if_done()
