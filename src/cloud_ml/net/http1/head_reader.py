"""The heads of one connection's requests: a client sends the same one most often."""

from typing import Generic, TypeVar, cast

from cloud_ml.net.http1.heads import Head, Heads, HeadTooLarge
from cloud_ml.net.http1.limits import Limits
from cloud_ml.net.http1.oversized_heads import end_of_oversized, oversized_head

H = TypeVar("H")

REMEMBERED = 1024
"""Bytes of a head that a connection knows again."""


class HeadReader(Generic[H]):
    """Reads heads that are not the same as the one before.

    Attributes:
        last: The bytes of the head that was read last, and the head, what it means to the service,
            and the length of its body.
    """

    __slots__ = ("_heads", "_limits", "last")

    def __init__(self, heads: Heads[H], limits: Limits) -> None:
        self._heads = heads
        self._limits = limits
        self.last: tuple[bytes, tuple[Head, H, int] | None] = (b"", None)

    def read(self, data: bytes, at: int) -> tuple[tuple[Head, H, int] | None, int]:
        """The head that begins at a place, and where it ends; ``None`` if that has not come."""
        most = self._limits.head_bytes
        # Without an end `find` gives -1, and `stop` is below 4.
        stop = data.find(b"\r\n\r\n", at, at + most) + 4
        if stop < 4:
            if len(data) - at < most or not (stop := end_of_oversized(data, at, self._limits)):
                return None, 0
            return self._oversized(data[at:stop]), stop
        text = data[at:stop]
        try:
            found = self._heads.read(text)
        except HeadTooLarge:
            found = self._oversized(text)
        if len(text) <= REMEMBERED:
            self.last = text, found
        return found, stop

    def _oversized(self, text: bytes) -> tuple[Head, H, int]:
        """Such a head, for a request that is refused."""
        head = oversized_head(text, self._limits)
        return head, cast("H", None), head.length
