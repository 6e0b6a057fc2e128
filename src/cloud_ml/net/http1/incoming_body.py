"""The body of a request that has not come whole with its head."""

import sys
from typing import Generic, TypeVar

from cloud_ml.net.http1.chunks import Chunks
from cloud_ml.net.http1.heads import CHUNKED, Head

H = TypeVar("H")

JOINED = 4_096
"""Bytes of pieces of a body that are kept as one."""


class IncomingBody(Generic[H]):
    """Collects a body in ``parts`` as its bytes come in: ``chunks`` where it comes in chunks, else
    ``add``.

    ``came`` are bytes that the connection has counted of it. At most ``missing`` are still to come;
    a body in chunks does not tell.

    Args:
        head: The head of the request.
        meaning: What that means for the service.
        length: Bytes of the body, or ``CHUNKED``.
        most: Bytes of the largest body.
    """

    __slots__ = ("came", "chunks", "head", "meaning", "missing", "parts")

    def __init__(self, head: Head, meaning: H, length: int, most: int) -> None:
        self.head = head
        self.meaning = meaning
        self.came = 0
        if length == CHUNKED:
            self.missing = sys.maxsize
            self.chunks: Chunks | None = Chunks(most)
            self.parts = self.chunks.parts
        else:
            self.missing = length
            self.chunks = None
            self.parts = []

    @property
    def behind(self) -> bool:
        """Whether some of what came is not read yet."""
        return self.chunks is not None and self.chunks.behind

    def add(self, data: bytes) -> bytes | None:
        """Take what came of a body that tells its length. What follows it, once it is whole; None
        before.
        """
        missing, parts = self.missing, self.parts
        if len(data) >= missing:
            parts.append(data[:missing])
            return data[missing:]
        # Small pieces are joined: each object takes forty bytes beside its content.
        if parts and len(parts[-1]) + len(data) <= JOINED:
            parts[-1] += data
        else:
            parts.append(data)
        self.missing = missing - len(data)
        return None
