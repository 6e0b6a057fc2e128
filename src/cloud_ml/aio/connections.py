"""Connections to one server, kept open between requests."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from cloud_ml.aio.http1 import Response
from cloud_ml.aio.wire import Wire
from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.messages import FileBody, Request, head_of

if TYPE_CHECKING:
    import ssl

_BLOCK_BYTES = 256 * 1024


class AsyncConnectionPool:
    """Hands out connections and takes them back. What is idle belongs to one event loop; another
    one begins anew.

    Args:
        endpoint: Whom to talk to.
        connect_timeout_s: Longest wait for a connection and for the TLS handshake.
    """

    def __init__(self, endpoint: Endpoint, *, connect_timeout_s: float) -> None:
        self._endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        self._idle: deque[AsyncConnection] = deque()

    async def acquire(self, *, read_timeout_s: float) -> AsyncConnection:
        """An open connection on which no read or write waits longer than ``read_timeout_s``.

        Raises:
            OSError: None could be made.
        """
        del read_timeout_s  # each exchange minds its own
        while self._idle:
            # The one used last: servers close connections that were idle for long, so it is the
            # likeliest to be open still.
            connection = self._idle.pop()
            if connection.wire.usable:
                return connection
            connection.close()
        async with asyncio.timeout(self._connect_timeout_s):
            return AsyncConnection(await self._connect(), self._endpoint)

    def release(self, connection: AsyncConnection) -> None:
        """Take back a connection whose answer was read to its end."""
        self._idle.append(connection)

    async def aclose(self) -> None:
        """Close what is idle. What is in use is closed by its user."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round

    async def _connect(self) -> Wire:
        loop, error = asyncio.get_running_loop(), None
        for family, host in await self._addresses(loop):
            try:
                _, wire = await loop.create_connection(
                    Wire,
                    host,
                    self._endpoint.port,
                    family=family,
                    ssl=self._tls,
                    server_hostname=self._endpoint.host if self._endpoint.secure else None,
                )
            except OSError as failure:
                error = failure
            else:
                return wire
        raise error or OSError("the host has no address")

    async def _addresses(self, loop: asyncio.AbstractEventLoop) -> list[tuple[int, str]]:
        host = self._endpoint.host
        with contextlib.suppress(ValueError):
            return [
                (
                    socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET,
                    host,
                )
            ]
        found = await loop.getaddrinfo(host, self._endpoint.port, type=socket.SOCK_STREAM)
        return [(family, str(address[0])) for family, _, _, _, address in found]

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        if not self._endpoint.secure:
            return None
        import ssl  # noqa: PLC0415 - only https pays for the context

        return ssl.create_default_context()


class AsyncConnection:
    """An open connection to a server."""

    def __init__(self, wire: Wire, endpoint: Endpoint) -> None:
        self.wire = wire
        self.host = endpoint.authority

    def close(self) -> None:
        """Hang up at once, whatever is under way."""
        self.wire.close()


async def exchange(
    connection: AsyncConnection, request: Request, target: str, headers: dict[str, str]
) -> Response:
    """Send a request and read the head of its answer.

    Raises:
        OSError, NotHttp: The connection broke, or what came is no HTTP.
    """
    wire, response = connection.wire, Response(connection.wire, timeout_s=request.read_timeout_s)
    broken: OSError | None = None
    cut_short = False
    for block in _blocks(connection.host, request, target, headers):
        # RFC 9112, section 9.5: a client that sends a body looks for an error that comes meanwhile,
        # and then stops sending.
        if cut_short := bool(
            wire.arrived
        ):  # it answers before it has read all: it may not read the rest
            break
        try:
            async with asyncio.timeout(request.read_timeout_s):
                await wire.write(block)
        except ConnectionError as error:
            broken = error
            break
    try:
        await response.begin(request.method, last=cut_short or broken is not None)
    except OSError as error:
        raise broken or error from None
    return response


def _blocks(
    host: str, request: Request, target: str, headers: dict[str, str]
) -> Iterator[bytes | memoryview]:
    if isinstance(request.body, FileBody):
        raise TypeError("files are sent from threads: see cloud_ml.aio.storage.files")
    head = head_of(host, request, target, headers)
    if len(request.body) <= _BLOCK_BYTES:
        yield head + request.body
        return
    yield head
    body = memoryview(request.body)
    for start in range(0, len(body), _BLOCK_BYTES):
        yield body[start : start + _BLOCK_BYTES]
