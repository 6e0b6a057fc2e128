"""One request on a connection, and the bounds that a connection keeps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

H = TypeVar("H")


class Sink(Protocol):
    """Who takes a body as it comes, for calls that are answered before it is whole."""

    def data(self, data: bytes, *, ended: bool) -> None:
        """Bytes of the body; ``ended`` with the last of them."""


@dataclass(slots=True)
class Budget:
    """Bytes of requests that are not whole yet, of all connections of a server together."""

    most: int = 1 << 30
    held: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may make large, in bytes, numbers and seconds.

    ``too_large`` makes the frames that answer a body over its bound on a stream. ``resets`` bounds frames that are free
    for the peer: see ``Patience``. ``body_s`` is how long a request may take to become whole, ``unread_s`` how long an
    answer may lie without progress, ``idle_s`` how long a connection may ask nothing.
    """

    body_bytes: int
    too_large: Callable[[int], tuple[bytes, ...]]
    frame_bytes: int = 65_536
    head_bytes: int = 16_384
    window: int = 8 << 20
    streams: int = 1_000
    resets: int = 1_000
    unread_bytes: int = 256 << 20
    head_s: int = 30
    body_s: int = 120
    unread_s: int = 60
    idle_s: int = 3_600
    budget: Budget = field(default_factory=Budget)


class Stream(Generic[H]):
    """A request that was not answered yet. ``asked`` is true once it is whole and with the service."""

    __slots__ = ("age", "asked", "chunks", "credit", "head", "sink", "size", "unacknowledged")

    def __init__(self, head: H) -> None:
        self.head = head
        self.chunks: list[bytes] = []
        self.size = 0
        self.unacknowledged = 0
        self.credit = 0  # what the peer gave this stream beyond its initial window
        self.asked = False
        self.sink: Sink | None = None
        self.age = 0  # seconds in which it did not become whole
