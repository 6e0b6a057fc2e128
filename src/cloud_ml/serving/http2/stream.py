"""One request on a connection, and the bounds that a connection keeps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

H = TypeVar("H")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may make large, in bytes and numbers.

    ``too_large`` makes the frames that answer a body over its bound on a stream.
    """

    body_bytes: int
    too_large: Callable[[int], tuple[bytes, ...]]
    frame_bytes: int = 65_536
    head_bytes: int = 16_384
    window: int = 8 << 20
    streams: int = 1_000
    resets: int = 1_000
    buffered_bytes: int = 256 << 20


class Stream(Generic[H]):
    """A request that was not answered yet. ``asked`` is true once it is whole and with the service."""

    __slots__ = ("asked", "chunks", "credit", "head", "size", "unacknowledged")

    def __init__(self, head: H) -> None:
        self.head = head
        self.chunks: list[bytes] = []
        self.size = 0
        self.unacknowledged = 0
        self.credit = 0  # what the peer gave this stream beyond its initial window
        self.asked = False
