"""Long bodies, with few copies: a transport writes them to where they will be read, or to memory
that is used again.

The first is for clients that keep to the largest frame that is allowed, as those on gRPC's own core
do: they send an image in one frame. The second is for those that send it in many.
"""

import asyncio
import threading
from typing import Protocol, cast

from cloud_ml.net.tuning import DIRECT_BYTES

READ = 262_144
"""Bytes that are read at once where they are to be looked at first."""
GLANCE = 16_384
"""The same behind a body that came in one piece: the next one's beginning, so that little of it
is copied.
"""
STAYS = 16
"""Reads without a long body after which it is over: handing over costs more than several reads."""


class Receiver(Protocol):
    """A connection that knows where the next bytes belong."""

    @property
    def long(self) -> bool:
        """Whether much of a body is still to come."""

    def room(self) -> memoryview | None:
        """Where the next bytes belong; None where they are to be looked at first."""

    def placed(self, size: int) -> None:
        """So many bytes were put there."""

    def passing(self, data: memoryview) -> None:
        """Take bytes from memory that is not theirs for long."""

    def data_received(self, data: bytes) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


class _Scratch(threading.local):
    """Memory that each read of a thread uses again: nothing lies in it from one to the next."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(READ))


_scratch = _Scratch()


class DirectBodyReader(asyncio.BufferedProtocol):
    """Stands between a transport and a connection for as long as long bodies come one after the
    other.
    """

    def __init__(self, connection: Receiver, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self._scratch = _scratch.memory
        self._first_bytes = self._scratch[:GLANCE]
        self._placed = False
        self._without = 0  # reads since the last long body
        _hand_over(transport, self)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        room = self._connection.room()
        if room is not None and len(room) >= DIRECT_BYTES:
            self._placed = True
            return room
        before, self._placed = self._placed, False
        return self._first_bytes if before else self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        connection = self._connection
        if self._placed:
            connection.placed(nbytes)
            return
        connection.passing(self._scratch[:nbytes])
        self._without = 0 if connection.long else self._without + 1
        if self._without >= STAYS and not self._transport.is_closing():
            _hand_over(self._transport, connection)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


def _hand_over(transport: asyncio.Transport, to: "DirectBodyReader | Receiver") -> None:
    """Have a transport give what it reads to another; how it reads is settled when it begins to."""
    # uvloop tells libuv in `uv_read_start` which callbacks fill the buffers, so another kind of
    # protocol takes effect only when reading starts again.
    reading = transport.is_reading()
    if reading:
        transport.pause_reading()
    transport.set_protocol(cast("asyncio.BaseProtocol", to))
    if reading:
        transport.resume_reading()
