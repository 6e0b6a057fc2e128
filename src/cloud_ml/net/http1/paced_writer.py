"""Writes long answers turn by turn, as fast as the peer reads them."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from cloud_ml.net.tuning import BYTES_SHIFT, WRITTEN_AT_ONCE
from cloud_ml.net.work_share import WorkShare


class PacedWriter:
    """Writes one long answer after the other.

    Args:
        share: The work of a turn.
        done: Called when all of an answer is with the transport.
    """

    def __init__(self, share: WorkShare, done: Callable[[], None]) -> None:
        self._share = share
        self._done = done
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[memoryview] = deque()
        self._deferred = False
        self.size = 0
        """Bytes that are not with the transport yet."""
        self.closing = False
        """Whether the connection ends behind what was added."""
        self.paused = False
        """Whether the peer reads nothing now."""

    def __bool__(self) -> bool:
        """Whether something is not with the transport yet."""
        return self.size > 0

    def add(self, pieces: Sequence[bytes | bytearray]) -> bool:
        """Write these after ``begin``; whether there is anything to write."""
        for piece in pieces:
            view = memoryview(piece)
            self.size += len(view)
            self._pieces.extend(
                view[at : at + WRITTEN_AT_ONCE] for at in range(0, len(view), WRITTEN_AT_ONCE)
            )
        return self.size > 0

    def begin(self, transport: asyncio.Transport) -> None:
        """Write what was added, now and in later turns, unless that has begun."""
        if self._transport is None:
            self._transport = transport
            self._write()

    def resume(self) -> None:
        """The peer reads again."""
        self.paused = False
        if self._pieces and not self._deferred:
            self._write()

    def close(self) -> None:
        """Nobody reads any more."""
        self._pieces.clear()
        self.size = 0

    def _write(self) -> None:
        """Write as much as belongs into a turn."""
        self._deferred = False
        assert self._transport is not None
        written = 0
        while self._pieces and not self.paused and written < WRITTEN_AT_ONCE:
            piece = self._pieces.popleft()
            written += len(piece)
            self.size -= len(piece)
            # The transport may call `pause_writing` in here, which sets `paused`.
            self._transport.write(piece)
        if self._pieces:
            if not self.paused:
                self._deferred = True
                self._share.charge(written >> BYTES_SHIFT)
                self._share.defer(self._write)
        elif written:
            # Before `done`: `begin` starts the next answer only where no transport is set.
            self._transport = None
            self._done()
