"""One port for every protocol: the first bytes of a connection tell which it speaks."""

import asyncio
import contextlib
import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Protocol, cast

from cloud_ml.net.http2.frames import PREFACE

_LOOKED_AT = 32
"""Connections that are looked at to find an idle one. Those that are busy are looked at last the
next time.
"""
_HANDSHAKES_S, _LOOK_S = 5.0, 0.05
"""So long does an end wait for handshakes, and how often it looks whether they are over."""


class Connection(Protocol):
    """A connection that can be asked to end in order."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def leave(self) -> None:
        """Answer what is under way, take nothing new, close."""

    def give_way(self) -> bool:
        """Close if no request is under way; false otherwise."""


class ProtocolSniffer(asyncio.Protocol):
    """Waits for the first bytes and hands the transport to who understands them.

    Args:
        http1: Makes the connection that speaks HTTP/1.
        http2: Makes the connection that speaks HTTP/2.
        alive: The connections there are.
        make_room: Whether there is room for one more.
        greeting_s: How long a connection may say nothing at all.
    """

    def __init__(
        self,
        http1: Callable[[], Connection],
        http2: Callable[[], Connection],
        alive: "Alive",
        make_room: Callable[[], bool] = lambda: True,
        greeting_s: float = 30.0,
    ) -> None:
        self._greeting_s = greeting_s
        self._make_room = make_room
        self._http1 = http1
        self._http2 = http2
        self._alive = alive
        self._begun = b""
        self._transport: asyncio.Transport | None = None
        self._seconds = 0.0
        self._leaving = False
        alive.expect(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class
        self._alive.arrived(self)
        if not self._make_room():
            self._transport.abort()
            return
        self._alive.add(self)
        if self._alive.leaving:
            self.leave()

    def data_received(self, data: bytes) -> None:
        data = self._begun + data
        # RFC 9113, section 3.4: no request of HTTP/1 begins like this preface, so four bytes tell.
        if len(data) < 4 and PREFACE.startswith(data):
            self._begun = data
            return
        assert self._transport is not None
        connection = (self._http2 if data[:4] == PREFACE[:4] else self._http1)()
        self._alive.add(connection)
        self._alive.forget(
            self
        )  # not before: with nobody alive for a moment, an end would not wait for the answer
        self._transport.set_protocol(cast("asyncio.BaseProtocol", connection))
        connection.connection_made(self._transport)
        connection.data_received(data)
        if self._leaving:
            connection.leave()

    def leave(self) -> None:
        """Nothing was asked yet, but may be on its way: who has just connected is answered."""
        self._leaving = True
        # What says nothing is cut by the second tick from now.
        self._seconds = max(self._seconds, self._greeting_s - 1)

    def give_way(self) -> bool:
        """Nothing was asked yet."""
        if self._transport is not None:
            self._transport.abort()
        return True

    def tick(self, _now: float) -> None:
        """Cut who says nothing: called every second."""
        self._seconds += 1
        if self._seconds > self._greeting_s and self._transport is not None:
            self._transport.abort()


class Alive:
    """The connections there are, until each is lost.

    Attributes:
        leaving: Who connects now is answered, and asked to go.
    """

    def __init__(self) -> None:
        self._connections: dict[Connection, Callable[[float], None] | None] = {}
        self._none = asyncio.Event()
        self._none.set()
        self._expected: weakref.WeakSet[Connection] = weakref.WeakSet()
        self.leaving = False

    def __len__(self) -> int:
        return len(self._connections)

    def expect(self, connection: Connection) -> None:
        """It is accepted, and arrives when the handshake of TLS is over. One that fails is told to
        nobody: its connection is forgotten by all.
        """
        self._expected.add(connection)

    def arrived(self, connection: Connection) -> None:
        """It is no longer expected."""
        self._expected.discard(connection)

    def add(self, connection: Connection) -> None:
        """Keep a connection until it is lost."""
        lost = connection.connection_lost

        def forget(exc: Exception | None) -> None:
            self.forget(connection)
            lost(exc)

        self._connections[connection] = getattr(connection, "tick", None)
        self._none.clear()
        connection.connection_lost = forget  # type: ignore[method-assign]

    def forget(self, connection: Connection) -> None:
        """It is lost, or another took its place."""
        self._connections.pop(connection, None)
        if not self._connections:
            self._none.set()

    def close_idle(self) -> bool:
        """Close a connection without a request, one of the oldest; false if none is found."""
        for connection in list(itertools.islice(self._connections, _LOOKED_AT)):
            self._connections[connection] = self._connections.pop(
                connection
            )  # last in order from now on
            if connection.give_way():
                return True
        return False

    def tick(self, now: float) -> None:
        """Let connections look whether their peers are too slow."""
        for tick in list(self._connections.values()):
            if tick is not None:
                tick(now)

    def leave(self) -> None:
        """Ask every connection to end its answers and close."""
        self.leaving = True
        for connection in list(self._connections):
            connection.leave()

    async def drain(self, seconds: float) -> None:
        """The same; give them this long."""
        self.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _HANDSHAKES_S)):
                await self._handshakes()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._none.wait(), seconds)

    async def _handshakes(self) -> None:
        """Wait until all that is accepted has arrived, or failed."""
        while self._expected:
            gc.collect()  # one that failed is a cycle of objects, and nobody is told of its end
            await asyncio.sleep(_LOOK_S if self._expected else 0)
