"""The lines of one role in the log of all tasks of a job. Pure."""

from __future__ import annotations

import re

_LONGEST_PREFIX = 256


class RoleLines:
    """Takes the log of all tasks in chunks, and gives the lines of the tasks of a role.

    Only the beginning of a line is kept until it is decided.

    Args:
        role: Such as ``worker``.
        timestamps: Whether a time stands before each line.
    """

    def __init__(self, role: str, *, timestamps: bool = False) -> None:
        time = rb"\S+ " if timestamps else b""
        self._own = re.compile(time + rb"\[" + re.escape(role.encode()) + rb"-\d+\] ")
        self._begun = b""
        self._keeps: bool | None = None

    def feed(self, chunk: bytes) -> bytes:
        """What of the chunk, and of what was not decided before it, belongs to the role."""
        kept, start = bytearray(), 0
        while start < len(chunk):
            end = chunk.find(b"\n", start) + 1 or len(chunk)
            piece, start = chunk[start:end], end
            if self._keeps is None:
                self._begun += piece
                if not (piece.endswith(b"\n") or len(self._begun) >= _LONGEST_PREFIX):
                    continue
                piece, self._begun = self._begun, b""
                self._keeps = self._own.match(piece) is not None
            if self._keeps:
                kept += piece
            if piece.endswith(b"\n"):
                self._keeps = None
        return bytes(kept)

    def end(self) -> bytes:
        """What was not decided yet, if it belongs to the role."""
        return self._begun if self._own.match(self._begun) else b""
