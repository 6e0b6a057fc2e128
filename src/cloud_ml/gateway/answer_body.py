"""The body of an answer while it arrives, in little more memory than its bytes need."""

from __future__ import annotations

_PLAIN_PIECES = 8
_SMALL = 4_096


class AnswerBody:
    """Collects pieces. Many small ones are joined, since each object costs forty bytes beside
    its content.
    """

    __slots__ = ("_pieces", "_tail", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._tail = bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        """The next piece."""
        self.size += len(data)
        if len(data) >= _SMALL or len(self._pieces) < _PLAIN_PIECES:
            self._close_tail()
            self._pieces.append(data)
            return
        self._tail += data
        if len(self._tail) >= _SMALL:
            self._close_tail()

    def pieces(self) -> tuple[bytes, ...]:
        """What came, in order."""
        self._close_tail()
        return tuple(self._pieces)

    def _close_tail(self) -> None:
        if self._tail:
            self._pieces.append(bytes(self._tail))
            self._tail.clear()
