"""Listens on loopback for processes of this user, until it is interrupted."""

from __future__ import annotations

import asyncio
import errno
import functools
import socket

from cloud_ml.net.budget import Budget
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.frames import END_HEADERS, END_STREAM, HEADERS, frame
from cloud_ml.net.http2.stream import Limits
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.optuna_proxy.acceptor import Acceptor, Admission, Refused, admit_own_user
from cloud_ml.optuna_proxy.service import Call, Head, OptunaService, status_block

MOST_BYTES = 4 << 20
"""The largest message of a client, as gRPC has it by default."""
_MOST_HELD = 64 << 20
_MOST_CONNECTIONS = 200
_TRIES = 20
_BACKLOG = 512
_NO_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


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
        found.listen(_BACKLOG)
        found.setblocking(False)
    except OSError:
        found.close()
        raise
    return found


async def serve(
    sockets: list[socket.socket],
    call: Call,
    refused: Refused,
    admission: Admission = admit_own_user,
) -> None:
    """Pass on what clients ask whom ``admission`` lets in, until it is cancelled."""
    loop = asyncio.get_running_loop()
    service, iteration = OptunaService(call, loop), LoopIteration(loop)
    limits = Limits(MOST_BYTES, _too_large, budget=Budget(_MOST_HELD), streams=100)
    alive: set[Connection] = set()

    async def take_over(stream: socket.socket) -> None:
        if len(alive) >= _MOST_CONNECTIONS:
            stream.close()
            return
        stream.setblocking(False)
        made = functools.partial(Connection, service, limits, iteration, alive)
        await loop.connect_accepted_socket(made, stream)

    acceptor = asyncio.create_task(Acceptor(sockets, admission, take_over, refused).run())
    try:
        while not acceptor.done():
            await asyncio.sleep(1)
            for each in list(alive):
                each.tick(loop.time())
        await acceptor
    finally:
        acceptor.cancel()
        for listener in sockets:
            listener.close()


class Connection(Http2Connection[Head]):
    """A connection that is in ``alive`` until it is lost."""

    def __init__(
        self,
        service: OptunaService,
        limits: Limits,
        iteration: LoopIteration,
        alive: set[Connection],
    ) -> None:
        super().__init__(service, limits, iteration)
        self._alive = alive

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._alive.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._alive.discard(self)
        super().connection_lost(exc)


def _too_large(stream: int) -> tuple[bytes, ...]:
    block = status_block(8, f"a message may have {MOST_BYTES} bytes")
    return (frame(HEADERS, END_HEADERS | END_STREAM, stream, block),)
