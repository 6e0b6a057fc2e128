"""Long bodies, written by the transport to where they will be read: what comes is not copied in between.

Clients that keep to the largest frame that is allowed, as those on gRPC's own core do, send an image in one frame.
"""

import asyncio
from typing import Protocol, cast

HEADS = 16_384
"""Bytes that are read at once between two long frames: what of the second comes with its head is copied."""


class Receiver(Protocol):
    """A connection that knows where the next bytes belong."""

    @property
    def long(self) -> bool:
        """Whether much of a frame is still to come that goes to a body."""

    def room(self) -> memoryview | None:
        """Where the next bytes belong; None where they are to be looked at first."""

    def placed(self, size: int) -> None:
        """So many bytes were put there."""

    def data_received(self, data: bytes) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


class Straight(asyncio.BufferedProtocol):
    """Stands between a transport and a connection for as long as long frames come one after the other."""

    def __init__(self, connection: Receiver, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport
        self._heads = memoryview(bytearray(HEADS))
        self._placed = False
        _hand_over(transport, self)

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        room = self._connection.room()
        self._placed = room is not None
        return self._heads if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        connection = self._connection
        if self._placed:
            connection.placed(nbytes)
            return
        connection.data_received(bytes(self._heads[:nbytes]))
        if not connection.long and not self._transport.is_closing():
            _hand_over(self._transport, connection)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


def _hand_over(transport: asyncio.Transport, to: "Straight | Receiver") -> None:
    """Have a transport give what it reads to another; how it reads is settled when it begins to."""
    reading = transport.is_reading()
    if reading:
        transport.pause_reading()
    transport.set_protocol(cast("asyncio.BaseProtocol", to))
    if reading:
        transport.resume_reading()
