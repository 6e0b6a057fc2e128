"""Connections to one server, kept open between requests."""

from __future__ import annotations

import http.client
from collections import deque

from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.messages import FileBody, Request
from cloud_ml.sdk.sockets import KEEPALIVE, went_stale

_BLOCK_BYTES = 256 * 1024


class ConnectionPool:
    """Hands out connections and takes them back; safe to use from several threads.

    Args:
        endpoint: Whom to talk to.
        connect_timeout_s: Longest wait for a connection and for the TLS handshake.
    """

    def __init__(self, endpoint: Endpoint, *, connect_timeout_s: float) -> None:
        self._endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        self._idle: deque[http.client.HTTPConnection] = deque()

    def acquire(self, *, read_timeout_s: float) -> http.client.HTTPConnection:
        """An open connection on which no read or write waits longer than ``read_timeout_s``.

        Raises:
            OSError: None could be made.
        """
        connection = self._reuse() or self._connect()
        connection.sock.settimeout(read_timeout_s)
        return connection

    def release(self, connection: http.client.HTTPConnection) -> None:
        """Take back a connection whose answer was read to its end."""
        if connection.sock is not None:
            self._idle.append(connection)

    def close(self) -> None:
        """Close what is idle. What is in use is closed by its user."""
        while self._idle:
            self._idle.pop().close()

    def _reuse(self) -> http.client.HTTPConnection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not went_stale(connection.sock):
                return connection
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        connection = _new(self._endpoint, self._connect_timeout_s)
        try:
            connection.connect()  # sets TCP_NODELAY itself
            for option in KEEPALIVE:
                connection.sock.setsockopt(*option)
        except BaseException:
            connection.close()
            raise
        return connection


def _new(endpoint: Endpoint, timeout_s: float) -> http.client.HTTPConnection:
    if not endpoint.secure:
        return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s, blocksize=_BLOCK_BYTES)
    import ssl  # noqa: PLC0415 - only https pays for the context

    return http.client.HTTPSConnection(
        endpoint.host,
        endpoint.port,
        timeout=timeout_s,
        blocksize=_BLOCK_BYTES,
        context=ssl.create_default_context(),
    )


def exchange(
    connection: http.client.HTTPConnection, request: Request, target: str, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """Send a request and read the head of its answer.

    Raises:
        OSError, http.client.HTTPException: The connection broke, or what came is no HTTP.
    """
    body = request.body.blocks() if isinstance(request.body, FileBody) else request.body or None
    try:
        connection.request(request.method, target, body=body, headers=headers)
    except (BrokenPipeError, ConnectionResetError) as error:
        # A server that refuses an upload may answer and close before it has read it all: the answer
        # says more than the broken pipe.
        try:
            response = connection.getresponse()
        except (OSError, http.client.HTTPException):
            raise error from None
        response.will_close = True
        return response
    return connection.getresponse()
