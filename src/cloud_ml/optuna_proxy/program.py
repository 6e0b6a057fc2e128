"""Listens on loopback for processes of this user, until it is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import Any, cast

from cloud_ml.net.budget import Budget
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.frames import END_HEADERS, END_STREAM, HEADERS, frame
from cloud_ml.net.http2.stream import Limits
from cloud_ml.net.turns import Turns
from cloud_ml.optuna_proxy import peers
from cloud_ml.optuna_proxy.service import Call, Head, OptunaService, status_block

MOST_BYTES = 4 << 20
"""The largest message of a client, as gRPC has it by default."""
_MOST_HELD = 64 << 20
_MOST_CONNECTIONS = 200
_TRIES = 20
_NO_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

Refused = Callable[[int | None], None]
"""Told the user id of a process that was refused; ``None`` if it is unknown."""


def listen(port: int) -> list[socket.socket]:
    """Sockets at this port of loopback, of IPv4 and, where there is one, of IPv6; 0 for a free port.

    Both are taken: a client that is told ``localhost`` may try either first, and what listens there
    must not be a stranger.

    Raises:
        OSError: The port is in use.
    """
    for attempt in range(_TRIES):
        first = _bind(socket.AF_INET, "127.0.0.1", port)
        try:
            # A free port of IPv4 may be taken on IPv6.
            second = _bind(socket.AF_INET6, "::1", first.getsockname()[1])
        except OSError as error:
            if error.errno in _NO_ADDRESS:
                return [first]
            first.close()
            if port or attempt == _TRIES - 1:
                raise
            continue
        return [first, second]
    raise OSError(errno.EADDRINUSE, "no port is free")


def _bind(family: int, host: str, port: int) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Else the port stays taken for a minute after an end (``TIME_WAIT``). On Linux two that
        # listen cannot share it like this.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen()
    except OSError:
        found.close()
        raise
    return found


async def serve(sockets: list[socket.socket], call: Call, refused: Refused) -> None:
    """Pass on what clients of this user ask, until it is cancelled."""
    loop = asyncio.get_running_loop()
    service, turns = OptunaService(call, loop), Turns(loop)
    limits = Limits(MOST_BYTES, _too_large, budget=Budget(_MOST_HELD), streams=100)
    alive: set[Http2Connection[Head]] = set()

    def connection() -> OwnConnection:
        return OwnConnection(lambda: Http2Connection(service, limits, turns), alive, refused)

    servers = [await loop.create_server(connection, sock=each) for each in sockets]
    try:
        while True:
            await asyncio.sleep(1)
            for each in list(alive):
                each.tick(loop.time())
    finally:
        for server in servers:
            server.close()


class OwnConnection(asyncio.Protocol):
    """A connection that is handed on if a process of this user made it, and else is closed unread.

    Args:
        made: Makes what speaks with it.
        alive: The connections there are.
        refused: See ``Refused``.
    """

    def __init__(
        self,
        made: Callable[[], Http2Connection[Head]],
        alive: set[Http2Connection[Head]],
        refused: Refused,
    ) -> None:
        self._made = made
        self._alive = alive
        self._refused = refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        # Before the look into the kernel's table, which is read line by line.
        if len(self._alive) >= _MOST_CONNECTIONS:
            stream.abort()
            return
        # Before a byte is read: other users of the machine reach loopback, too.
        owner = _owner(stream)
        if owner != os.geteuid():
            stream.abort()
            self._refused(owner)
            return
        connection = self._made()
        self._alive.add(connection)
        lost = connection.connection_lost

        def forget(error: Exception | None) -> None:
            self._alive.discard(connection)
            lost(error)

        connection.connection_lost = forget  # type: ignore[method-assign, assignment]
        stream.set_protocol(connection)
        connection.connection_made(stream)


def _owner(transport: asyncio.Transport) -> int | None:
    peer: Any = transport.get_extra_info("peername")
    here: Any = transport.get_extra_info("sockname")
    if not peer or not here:
        return None
    with contextlib.suppress(ValueError):
        return peers.owner_of(peer[:2], here[:2])
    return None


def _too_large(stream: int) -> tuple[bytes, ...]:
    block = status_block(8, f"a message may have {MOST_BYTES} bytes")
    return (frame(HEADERS, END_HEADERS | END_STREAM, stream, block),)
