"""The calls on one HTTP/2 connection to a replica: those that have a stream, those that wait for
one, and the past.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol

from cloud_ml.gateway.answer_body import AnswerBody
from cloud_ml.net.budget import COUNTED, Budget
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import ConnectionFault
from cloud_ml.net.http2.stream import Received, Stream

_REMEMBERED = 1_000
"""Streams that ended for the gateway before they ended for the replica."""


class Caller(Protocol):
    """Waits for an answer. One of ``ended`` and ``failed`` is called, once, unless the call is
    cancelled.
    """

    streams: bool
    """Whether pieces are wanted as they come."""

    def began(self, head: bytes) -> None:
        """The head of the answer came; only called where ``streams``."""

    def piece(self, data: bytes) -> None:
        """A piece of the body; only called where ``streams``."""

    def ended(self, head: bytes, body: tuple[bytes, ...], size: int, trailers: bytes) -> None:
        """The answer is whole: blocks of headers that need no table, and what of the body was
        not passed on yet.
        """

    def failed(self, *, refused: bool, too_large: bool = False, no_room: bool = False) -> None:
        """There will be no answer; ``refused``: the replica has surely not begun to work on it."""


class ReplicaCall:
    """A call that has its stream."""

    __slots__ = (
        "body",
        "caller",
        "head",
        "held",
        "interim",
        "paused",
        "request_sent",
        "silent_s",
        "stream",
        "unacknowledged",
    )

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.stream: Stream[None] = Stream(None)
        self.head: bytes | None = None
        self.body = AnswerBody()
        self.held = 0  # bytes of it that count in the budget
        self.interim = 0
        self.silent_s = 0
        self.unacknowledged = 0
        self.paused = False  # the replica gets no window
        self.request_sent = True


class CallTable:
    """Numbers of streams, and what is known of each. ``bodies`` counts the answers until they
    are passed on.
    """

    def __init__(self, window: int, bodies: Budget) -> None:
        self._window = window
        self._bodies = bodies
        self._calls: dict[int, ReplicaCall] = {}
        self._numbers: dict[int, int] = {}
        self._queue: OrderedDict[int, tuple[bytes, Received, Caller]] = OrderedDict()
        self._ended: dict[int, int] = {}
        self.next = 1

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[tuple[int, ReplicaCall]]:
        return iter(list(self._calls.items()))

    # --- streams ---

    def begin(self, caller: Caller) -> tuple[int, ReplicaCall]:
        """A new stream."""
        number, self.next = self.next, self.next + 2
        call = self._calls[number] = ReplicaCall(caller)
        self._numbers[id(caller)] = number
        return number, call

    def find(self, number: int) -> ReplicaCall | None:
        """The call on a stream."""
        return self._calls.get(number)

    def number_of(self, caller: Caller) -> int:
        """The stream of a caller; 0 where it has none."""
        return self._numbers.get(id(caller), 0)

    def end(self, number: int, *, for_both: bool) -> ReplicaCall:
        """The call has ended; unless ``for_both``, the replica may not know it yet and still
        send something.
        """
        call = self._calls.pop(number)
        self._release(call)
        self._numbers.pop(id(call.caller), None)
        if not for_both:
            self._ended[number] = 0
            if len(self._ended) > _REMEMBERED:
                del self._ended[next(iter(self._ended))]
        return call

    def add_piece(self, call: ReplicaCall, data: bytes) -> bool:
        """A piece of an answer came; False where all bodies together leave no room for it."""
        call.body.add(data)
        if call.body.size < COUNTED:
            return True
        self._bodies.add(call.body.size - call.held)
        call.held = call.body.size
        return not self._bodies.full

    def _release(self, call: ReplicaCall) -> None:
        if call.held:
            self._bodies.add(-call.held)
            call.held = 0

    def check_known(self, number: int) -> None:
        """See that a stream was opened.

        Raises:
            ConnectionFault: It was not.
        """
        if number == 0 or not number & 1 or number >= self.next:
            raise ConnectionFault(
                frames.PROTOCOL_ERROR, f"an answer on stream {number}, which was not opened"
            )

    def late(self, number: int, size: int) -> None:
        """A frame came on a stream without a call, with so much data.

        Raises:
            ConnectionFault: The replica has no reason to send it.
        """
        self.check_known(number)
        if number not in self._ended:
            raise ConnectionFault(frames.STREAM_CLOSED, f"more on stream {number}, which is over")
        self._ended[number] += size
        if self._ended[number] > self._window:
            raise ConnectionFault(
                frames.FLOW_CONTROL_ERROR, f"more data on stream {number} than was allowed"
            )

    # --- calls without a stream ---

    @property
    def queued(self) -> int:
        """How many calls wait for a stream."""
        return len(self._queue)

    def enqueue(self, head: bytes, body: Received, caller: Caller) -> None:
        """Have a call wait."""
        self._queue[id(caller)] = head, body, caller

    def dequeue(self) -> tuple[bytes, Received, Caller]:
        """The call that has waited longest."""
        return self._queue.popitem(last=False)[1]

    def remove(self, caller: Caller) -> None:
        """A call waits no more."""
        self._queue.pop(id(caller), None)

    def clear(self) -> tuple[list[Caller], list[Caller]]:
        """Forget everything; who had a stream, and who waited for one."""
        calls, queue = self._calls, self._queue
        self._calls, self._queue, self._numbers = {}, OrderedDict(), {}
        for call in calls.values():
            self._release(call)
        return [call.caller for call in calls.values()], [each[2] for each in queue.values()]
