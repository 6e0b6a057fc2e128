"""One port for every protocol: the first bytes of a connection tell which it speaks."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Protocol, cast

from cloud_ml.net.http2.frames import PREFACE

GREETING_S = 30.0
"""How long a connection may say nothing at all."""
_LOOKED_AT = 32
"""Connections that are looked at to find an idle one. Those that are busy are looked at last the
next time.
"""


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
    """Waits for the first bytes and hands the transport to who understands them."""

    def __init__(
        self,
        http1: Callable[[], Connection],
        http2: Callable[[], Connection],
        alive: "Alive",
        make_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._make_room = make_room
        self._http1 = http1
        self._http2 = http2
        self._alive = alive
        self._begun = b""
        self._transport: asyncio.Transport | None = None
        self._seconds = 0.0
        self._leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class
        if not self._make_room():
            self._transport.abort()
            return
        self._alive.add(self)

    def data_received(self, data: bytes) -> None:
        data = self._begun + data
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
        self._seconds = max(self._seconds, GREETING_S - 1)

    def give_way(self) -> bool:
        """Nothing was asked yet."""
        if self._transport is not None:
            self._transport.abort()
        return True

    def tick(self, _now: float) -> None:
        """Cut who says nothing: called every second."""
        self._seconds += 1
        if self._seconds > GREETING_S and self._transport is not None:
            self._transport.abort()


class Alive:
    """The connections there are, until each is lost."""

    def __init__(self) -> None:
        self._connections: dict[Connection, Callable[[float], None] | None] = {}
        self._none = asyncio.Event()
        self._none.set()

    def __len__(self) -> int:
        return len(self._connections)

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
        for connection in list(self._connections):
            connection.leave()

    async def drain(self, seconds: float) -> None:
        """The same; give them this long."""
        self.leave()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._none.wait(), seconds)
