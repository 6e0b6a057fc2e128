"""One request on a connection, and the bounds that a connection keeps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from cloud_ml.net.budget import Budget

H = TypeVar("H")
HEAD_BYTES = 9
"""Of a frame."""
Received = bytes | bytearray
"""A body: of one frame, or put together."""


class Sink(Protocol):
    """Who takes a body as it comes, for calls that are answered before it is whole."""

    def data(self, data: bytes, *, ended: bool) -> None:
        """Bytes of the body; ``ended`` with the last of them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may make large, in bytes, numbers and seconds.

    ``frame_bytes`` is for frames of data, which are not gathered: one large piece of a body costs
    less than many. ``pushed_bytes`` of an answer that comes in pieces may lie unread. ``too_large``
    makes the frames that answer a body over its bound on a stream, ``no_room`` those where the
    budget is full (else ``too_large`` does). ``refused`` judges the meaning of a head: the service
    refuses the request, and it is served without its body. ``resets`` bounds frames that are free
    for the peer: see ``Patience``. ``body_s`` is how long a request may take to become whole,
    ``unread_s`` how long an answer may lie without progress, ``idle_s`` how long a connection may
    ask nothing. ``unread_budget`` counts answers that wait for their peers to read. A head has at
    most ``empty_frames`` without a byte; a connection recognises ``kept_head_bytes`` of heads.
    """

    body_bytes: int
    too_large: Callable[[int], tuple[bytes, ...]]
    frame_bytes: int = 1 << 20
    head_bytes: int = 16_384
    window: int = 8 << 20
    streams: int = 1_000
    resets: int = 1_000
    unread_bytes: int = 256 << 20
    pushed_bytes: int = 1 << 20
    head_s: int = 30
    body_s: int = 120
    unread_s: int = 60
    idle_s: int = 3_600
    budget: Budget = field(default_factory=Budget)
    unread_budget: Budget | None = None
    no_room: Callable[[int], tuple[bytes, ...]] | None = None
    refused: Callable[[Any], bool] | None = None
    empty_frames: int = 16
    kept_head_bytes: int = 131_072


class Gathered:
    """A body that comes in pieces, each put at once where the whole will be read.

    ``size`` bytes of ``held`` came, to the beginning of ``view``. ``declared_bytes`` is the length
    that the request declares.
    """

    __slots__ = ("_memory", "declared_bytes", "held", "size", "view")

    def __init__(self, held: int, declared_bytes: int = 0) -> None:
        self.declared_bytes = declared_bytes
        self._memory = bytearray(held)
        self.view = memoryview(self._memory)
        self.held = held
        self.size = 0

    def grow(self, held: int) -> None:
        """Have room for more."""
        # A bytearray that a memoryview exports cannot be resized (BufferError).
        self.view.release()
        self._memory += bytes(held - self.held)
        self.view = memoryview(self._memory)
        self.held = held

    def add(self, data: bytes | memoryview, at: int, stop: int) -> None:
        """The next piece, for which there is room: ``data[at:stop]``."""
        begin = self.size
        self.size = end = begin + stop - at
        self.view[begin:end] = memoryview(data)[at:stop]

    def room(self, size: int) -> memoryview | None:
        """Where the next ``size`` bytes belong, or as many of them as there is room for."""
        end = min(self.size + size, self.held)
        return self.view[self.size : end] if end > self.size else None

    def whole(self) -> bytearray:
        """All of it; nothing can be added then."""
        if self.size == self.held:
            return self._memory  # who has written to it may hold it still
        with self.view[: self.size] as come:
            return bytearray(come)


class Stream(Generic[H]):
    """A request that was not answered yet. ``dispatched`` is true once the service has the whole.

    ``held`` bytes of a whole body count in the budget until it is answered.
    """

    __slots__ = ("age", "body", "credit", "dispatched", "head", "held", "sink", "unacknowledged")

    def __init__(self, head: H) -> None:
        self.head = head
        self.body: Gathered | None = None  # what has come of one in several frames
        self.held = 0
        self.unacknowledged = 0
        self.credit = 0  # what the peer gave this stream beyond its initial window
        self.dispatched = False
        self.sink: Sink | None = None
        self.age = 0  # seconds in which it did not become whole
