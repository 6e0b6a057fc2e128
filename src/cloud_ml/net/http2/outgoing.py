"""What goes out on a connection, within what the peer allows: RFC 9113, section 5.2."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from cloud_ml.net.budget import Budget
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import ConnectionFault, StreamFault
from cloud_ml.net.http2.stream import Stream
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.pieces import Body, Pieces, pieces_of
from cloud_ml.net.tuning import BYTES_SHIFT, MOST_SETTINGS, SENT_IN_TURN

Sized = tuple[int, tuple[bytes, ...]]
"""How long a body is, and its pieces."""
JOINED = 16_384
"""Bytes of pieces of an answer that are kept as one."""
SENT_UNITS = 4
"""Units of an answer that goes on."""
EMPTY: Sized = (0, ())


class _Waiting:
    """What is larger than the peer takes now. ``trailers``: ``None`` where more comes, ``b""``
    where data ends it.

    ``age`` counts seconds without progress. ``drained`` is called when all of it is out.
    """

    __slots__ = ("_later", "age", "drained", "rest", "size", "stream", "trailers")

    def __init__(
        self, stream: Stream[Any], pieces: Sequence[bytes | bytearray], trailers: bytes | None
    ) -> None:
        self.stream = stream
        self._later = deque(pieces)
        self.size = sum(map(len, pieces))
        """Bytes that are not out yet."""
        self.rest = memoryview(b"")
        self.trailers = trailers
        self.age = 0
        self.drained: Callable[[], None] | None = None
        self._next()

    def add(self, data: bytes) -> None:
        """One more piece. Small ones are joined: each object takes forty bytes beside its
        content.
        """
        later = self._later
        self.size += len(data)
        if later and type(later[-1]) is bytearray and len(later[-1]) + len(data) <= JOINED:
            later[-1] += data
        else:
            later.append(bytearray(data) if len(data) < JOINED else data)
        self._next()

    def advance(self, size: int) -> None:
        """So many bytes went out."""
        self.age = 0
        self.size -= size
        self.rest = self.rest[size:]
        self._next()

    def _next(self) -> None:
        while not self.rest and self._later:
            self.rest = memoryview(self._later.popleft())


class Outgoing:
    """Collects frames during a turn and writes them at its end. Answers that do not fit wait for
    their windows.

    What waits counts in ``budget``, where there is one.
    """

    def __init__(self, iteration: LoopIteration, budget: Budget | None = None) -> None:
        self._iteration = iteration
        self._budget = budget
        self._transport: asyncio.Transport | None = None
        self._hung_up: Callable[[], None] | None = None
        self._parts: list[bytes] = []
        self._window = frames.DEFAULT_WINDOW
        self._initial = frames.DEFAULT_WINDOW
        self._frame = frames.DEFAULT_FRAME
        self._waiting: dict[int, _Waiting] = {}
        self.held = 0
        self.moved = True
        self.paused = False
        self._sent = 0  # bytes of waiting answers since the last pause
        self._deferred = False  # more of them go out in a later turn

    @property
    def waiting(self) -> int:
        """How many answers are not out yet; ``held`` are their bytes, ``moved`` tells that some of
        them went.

        While ``paused`` is set, they stay.
        """
        return len(self._waiting)

    def open(self, transport: asyncio.Transport, hung_up: Callable[[], None] | None = None) -> None:
        """Write there from now on, and call ``hung_up`` when the last answer is out."""
        self._transport = transport
        self._hung_up = hung_up

    def close(self) -> None:
        """Nobody reads any more."""
        self._transport = self._hung_up = None
        self._parts.clear()
        self._waiting.clear()
        self._hold(-self.held)

    def _hold(self, size: int) -> None:
        self.held += size
        if self._budget is not None:
            self._budget.add(size)

    def hang_up(self) -> None:
        """Write what was collected, and nothing after it."""
        self.flush()
        hung_up = self._hung_up
        if hung_up is not None:
            self.close()
            self._iteration.write(hung_up)  # not within a read, which keeps what is left of it

    def send(self, *parts: bytes) -> None:
        """Frames that no window counts."""
        if not self._parts:
            self._iteration.write(self.flush)
        self._parts.extend(parts)

    def flush(self) -> None:
        """Write what was collected."""
        if self._parts:
            parts, self._parts = self._parts, []
            if self._transport is not None:
                self._transport.write(b"".join(parts))

    def answer(
        self, number: int, stream: Stream[Any], head: bytes, body: Sized, trailers: bytes
    ) -> None:
        """A whole answer to a request: see ``Requests.answer``."""
        size, pieces = body
        if not self._parts:
            self._iteration.write(self.flush)
        put = self._parts
        stream_id = frames.NUMBER.pack(number)
        if not size:
            # 0x5: END_HEADERS and END_STREAM.
            put += (_lead_of(len(head), frames.HEADERS, 0x5), stream_id, head)
            return
        if size <= self._window and size <= self._initial + stream.credit and size <= self._frame:
            self._window -= size
            # All but the stream's number is the same for answers of one shape: it is looked up.
            first, second, third = _around(head, size, len(trailers))
            put += (first, stream_id, second, stream_id, *pieces, third, stream_id, trailers)
            return
        put += (_lead_of(len(head), frames.HEADERS, 0x4), stream_id, head)
        self._waiting[number] = _Waiting(stream, pieces, trailers)
        self._hold(size)
        self._try(number)

    def message(self, number: int, stream: Stream[Any], head: bytes, body: Body) -> None:
        """A whole request of a client, or an answer without trailers: its last byte of data ends
        it.
        """
        size = len(body)
        self.send(frames.frame(frames.HEADERS, 0x4 if size else 0x5, number, head))
        if not size:
            return
        if size <= self._window and size <= self._initial + stream.credit and size <= self._frame:
            self._window -= size
            whole = body.joined() if isinstance(body, Pieces) else body
            self.send(frames.frame(frames.DATA, frames.END_STREAM, number, whole))
            return
        self._waiting[number] = _Waiting(stream, pieces_of(body), b"")
        self._hold(size)
        self._try(number)

    def begin(self, number: int, head: bytes) -> None:
        """The head of an answer whose body comes piece by piece."""
        self.send(frames.frame(frames.HEADERS, 0x4, number, head))

    def push(self, number: int, stream: Stream[Any], data: bytes) -> None:
        """A piece of such a body."""
        waiting = self._waiting.get(number)
        if waiting is None:
            self._waiting[number] = _Waiting(stream, (data,), None)
        else:
            waiting.add(data)
        self._hold(len(data))
        self._try(number)

    def finish(self, number: int, trailers: bytes) -> None:
        """The end of such an answer."""
        waiting = self._waiting.get(number)
        if waiting is None:
            self.send(frames.frame(frames.HEADERS, 0x5, number, trailers))
        else:
            waiting.trailers = trailers

    def end(self, number: int) -> None:
        """The end of a request that went piece by piece."""
        waiting = self._waiting.get(number)
        if waiting is None:
            self.send(frames.frame(frames.DATA, frames.END_STREAM, number))
        else:
            waiting.trailers = b""

    def holds(self, number: int) -> int:
        """Bytes of an answer that are not out yet."""
        waiting = self._waiting.get(number)
        return waiting.size if waiting is not None else 0

    def when_out(self, number: int, resume: Callable[[], None]) -> None:
        """Call ``resume`` in a later turn, once all of an answer so far is out."""
        waiting = self._waiting.get(number)
        if waiting is None:
            self._iteration.share.defer(resume)
        else:
            waiting.drained = resume

    def defer(self, resume: Callable[[], None], units: int) -> None:
        """Count work that was done in this turn, and call ``resume`` in a later one."""
        self._iteration.share.charge(units)
        self._iteration.share.defer(resume)

    def overdue(self, seconds: float) -> list[int]:
        """A second passed: the answers that made no progress for so long."""
        late = []
        for number, waiting in self._waiting.items():
            waiting.age += 1
            if (
                waiting.age > seconds + 1
            ):  # where no answer makes progress, the connection ends before
                late.append(number)
        return late

    def more(self, number: int, credit: int, stream: Stream[Any] | None) -> int:
        """The peer takes more: on the connection, or on a stream that may be answered already.

        Returns:
            Units of work, about.
        """
        if credit == 0:
            fault = StreamFault if number else ConnectionFault
            raise fault(frames.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        if number == 0:
            before = self._window
            self._window += credit
            if self._window > frames.LARGEST_WINDOW:
                raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "the window of the connection")
            return self.go_on() if before <= 0 else 0  # else no answer waits for this window
        waiting = self._waiting.get(number)
        stream = waiting.stream if waiting is not None else stream
        if stream is None:
            return 0
        stream.credit += credit
        if self._initial + stream.credit > frames.LARGEST_WINDOW:
            raise StreamFault(frames.FLOW_CONTROL_ERROR, f"the window of stream {number}")
        if waiting is None:
            return 0
        self._try(number)
        return SENT_UNITS

    def drop(self, number: int) -> bool:
        """Nobody waits for this answer any more; whether some of it was left."""
        waiting = self._waiting.pop(number, None)
        if waiting is None:
            return False
        self._hold(-waiting.size)
        return True

    def settings(self, number: int, flags: int, payload: bytes) -> int:
        """What the peer wants, acknowledged: section 6.5.

        Returns:
            Units of work, about.
        """
        if number:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "SETTINGS of a stream")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, "SETTINGS")
        if len(payload) > 6 * MOST_SETTINGS:
            raise ConnectionFault(
                frames.ENHANCE_YOUR_CALM, f"SETTINGS of more than {MOST_SETTINGS} parameters"
            )
        if flags & frames.ACK:
            return 0
        for key, value in frames.SETTING.iter_unpack(payload):
            if key == frames.INITIAL_WINDOW_SIZE:
                if value > frames.LARGEST_WINDOW:
                    raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "the initial window")
                # Section 6.9.2: this changes the window of each open stream, also to below zero. So
                # streams keep only what they got beyond it (`credit`).
                self._initial = value
            elif key == frames.MAX_FRAME_SIZE:
                if not frames.DEFAULT_FRAME <= value < 1 << 24:
                    raise ConnectionFault(frames.PROTOCOL_ERROR, "the largest frame")
                self._frame = value
            elif key == frames.ENABLE_PUSH and value > 1:
                raise ConnectionFault(frames.PROTOCOL_ERROR, "push is on or off")
        self.send(frames.frame(frames.SETTINGS, frames.ACK, 0))
        return self.go_on()

    def go_on(self) -> int:
        """Send as much of the waiting answers as the windows allow, the oldest first.

        Returns:
            Units of work, about.
        """
        looked_at = 0
        for number in list(self._waiting):
            if self._window <= 0 or self.paused or self._deferred:
                break
            self._try(number)
            looked_at += 1
        return looked_at

    def _try(self, number: int) -> None:
        """Send as much of one waiting answer as the windows allow."""
        waiting = self._waiting[number]
        while waiting.rest:
            if self.paused:
                return
            if self._sent >= SENT_IN_TURN:
                self._send_later()
                return
            size = min(
                len(waiting.rest), self._window, self._initial + waiting.stream.credit, self._frame
            )
            if size <= 0:
                return
            # An answer with trailers ends by them; `None` means that more of it will come.
            last = waiting.trailers == b"" and size == waiting.size
            self.send(
                frames.frame(
                    frames.DATA,
                    frames.END_STREAM if last else 0,
                    number,
                    bytes(waiting.rest[:size]),
                )
            )
            waiting.advance(size)
            self._sent += size
            self._window -= size
            waiting.stream.credit -= size
            self._hold(-size)
            self.moved = True
        if waiting.trailers:
            self.send(frames.frame(frames.HEADERS, 0x5, number, waiting.trailers))
        del self._waiting[number]
        if waiting.drained is not None:
            self._iteration.share.defer(waiting.drained)

    def _send_later(self) -> None:
        """Go on in a later turn: others have theirs before."""
        if not self._deferred:
            self._deferred = True
            self._iteration.share.charge(SENT_IN_TURN >> BYTES_SHIFT)
            self._iteration.share.defer(self._resume)

    def _resume(self) -> None:
        self._deferred = False
        self._sent = 0
        self.go_on()


def _lead_of(size: int, kind: int, flags: int) -> bytes:
    """The first five bytes of a frame: all but the stream."""
    return frames.HEAD.pack(size >> 8, size & 0xFF, kind, flags, 0)[:5]


@lru_cache(1024)
def _around(head: bytes, size: int, trailers: int) -> tuple[bytes, bytes, bytes]:
    """What stands before each of the three places in an answer where its stream is named."""
    return (
        _lead_of(len(head), frames.HEADERS, 0x4),
        head + _lead_of(size, frames.DATA, 0),
        _lead_of(trailers, frames.HEADERS, 0x5),
    )
