"""Connections to one server, kept open between requests."""

from __future__ import annotations

import socket
import weakref
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.http1 import Response
from cloud_ml.sdk.messages import FileBody, Request, head_of
from cloud_ml.sdk.sockets import KEEPALIVE
from cloud_ml.sdk.wire import Wire

if TYPE_CHECKING:
    import ssl


class Connection:
    """An open connection to a server."""

    def __init__(self, wire: Wire, host: str) -> None:
        self.wire = wire
        self.host = host

    def cut(self) -> None:
        """From another thread: whoever waits for this connection is told that it broke."""
        # Not ``close``: closing a descriptor does not wake the thread that waits in ``recv``, and
        # its number may be given to another file meanwhile.
        self.wire.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up at once, whatever is under way."""
        self.wire.close()


def _close_all(idle: deque[Connection]) -> None:
    while idle:
        idle.pop().close()


class ConnectionPool:
    """Hands out connections and takes them back; safe to use from several threads.

    Args:
        endpoint: Whom to talk to.
        connect_timeout_s: Longest wait for a connection and for the TLS handshake.
    """

    def __init__(self, endpoint: Endpoint, *, connect_timeout_s: float) -> None:
        self._endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        self._idle: deque[Connection] = deque()
        # A handle of a service is dropped and not closed: its connections must not stay open.
        weakref.finalize(self, _close_all, self._idle)

    def acquire(self, *, read_timeout_s: float) -> Connection:
        """An open connection on which no read or write waits longer than ``read_timeout_s``.

        Raises:
            OSError: None could be made.
        """
        connection = self._reuse() or Connection(self._connect(), self._endpoint.authority)
        connection.wire.sock.settimeout(read_timeout_s)
        return connection

    def release(self, connection: Connection) -> None:
        """Take back a connection whose answer was read to its end."""
        self._idle.append(connection)

    def close(self) -> None:
        """Close what is idle. What is in use is closed by its user."""
        _close_all(self._idle)

    def _reuse(self) -> Connection | None:
        while True:
            try:
                # The one used last: servers close connections that were idle for long, so it is the
                # likeliest to be open still.
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.wire.usable:
                return connection
            connection.close()

    def _connect(self) -> Wire:
        sock = socket.create_connection(
            (self._endpoint.host, self._endpoint.port), self._connect_timeout_s
        )
        try:
            # Head and body may be two writes: with Nagle's algorithm (RFC 896) the second waits for
            # the acknowledgement of the first, which the other side delays by up to 40 ms.
            for option in ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *KEEPALIVE):
                sock.setsockopt(*option)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self._endpoint.host)
        except BaseException:
            sock.close()
            raise
        return Wire(sock)

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        if not self._endpoint.secure:
            return None
        import ssl  # noqa: PLC0415 - only https pays for the context

        return ssl.create_default_context()


def exchange(
    connection: Connection, request: Request, target: str, headers: dict[str, str]
) -> Response:
    """Send a request and read the head of its answer.

    Raises:
        OSError, NotHttp: The connection broke, or what came is no HTTP.
    """
    wire, response = connection.wire, Response(connection.wire, timeout_s=request.read_timeout_s)
    broken: OSError | None = None
    try:
        for block in _blocks(request, head_of(connection.host, request, target, headers)):
            wire.write(block)
    except (BrokenPipeError, ConnectionResetError) as error:
        # A server that refuses an upload may answer and close before it has read it all: the answer
        # says more than the broken pipe.
        broken = error
    try:
        response.begin(request.method, last=broken is not None)
    except OSError as error:
        raise broken or error from None
    return response


def _blocks(request: Request, head: bytes) -> Iterator[bytes]:
    if isinstance(request.body, FileBody):
        yield head
        yield from request.body.blocks()
    else:
        yield head + request.body
