"""Long bodies as they came: a service that only passes them on need not put them together."""

from collections.abc import Sequence

from cloud_ml.net.tuning import UNJOINED_BYTES


class Pieces:
    """A body in pieces."""

    __slots__ = ("_size", "parts")

    def __init__(self, parts: Sequence[bytes | bytearray]) -> None:
        self.parts = parts
        self._size = sum(map(len, parts))

    def __len__(self) -> int:
        return self._size

    def joined(self) -> bytes:
        """All of it."""
        return b"".join(self.parts)


Body = bytes | bytearray | Pieces
"""A body, whole or in pieces."""


def pieces_of(body: Body) -> Sequence[bytes | bytearray]:
    """A body as pieces."""
    return body.parts if isinstance(body, Pieces) else (body,)


def gather_pieces(parts: Sequence[bytes | bytearray]) -> bytes | Pieces:
    """A body of pieces, joined where it is short."""
    first = parts[0] if len(parts) == 1 else b""
    if isinstance(first, bytes) and first:
        return first
    pieces = Pieces(parts)
    return pieces if len(pieces) >= UNJOINED_BYTES else pieces.joined()
