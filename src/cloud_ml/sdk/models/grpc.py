"""One call over gRPC, on a connection of its own."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from cloud_ml import errors
from cloud_ml.net.client.errors import AnswerTooLarge, CallLost, NotHttp
from cloud_ml.net.client.unary_call import UnaryCall
from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.failures import error_of_exception

if TYPE_CHECKING:
    import ssl

MOST_BYTES = 256 << 20
"""Of an answer."""
_CONNECT_S = 10.0
_RECEIVED_AT_ONCE = 65_536
_KINDS: Mapping[int, type[errors.CloudMlError]] = {
    3: errors.InvalidRequest,
    5: errors.NotFound,
    7: errors.Forbidden,
    8: errors.TooMany,
    9: errors.Conflict,
    11: errors.InvalidRequest,
    14: errors.Unavailable,
    16: errors.Unauthenticated,
}
"""Status codes of gRPC → errors of ours."""


class Socket(Protocol):
    """What is used of a socket."""

    def settimeout(self, value: float, /) -> None: ...
    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...


def call(
    endpoint: Endpoint, method: str, message: bytes, headers: Mapping[str, str], *, timeout_s: float
) -> bytes:
    """The message that answers ``message``.

    Args:
        endpoint: Whom to ask.
        method: Such as ``/package.Service/Method``.
        message: Serialised.
        headers: Further ones, in lower case.
        timeout_s: The deadline; the server is told.

    Raises:
        CloudMlError: What the server's status means; ``TransportError`` where there is no gRPC
            server.
    """
    deadline = time.monotonic() + timeout_s
    unary = UnaryCall(
        [
            (":method", "POST"),
            (":scheme", endpoint.scheme),
            (":path", method),
            (":authority", endpoint.authority),
            # The protocol of gRPC over HTTP/2 asks for it: it shows proxies that drop trailers.
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            # A positive whole number, so at least 1.
            ("grpc-timeout", f"{max(1, int(1000 * timeout_s))}m"),
            ("user-agent", "cloudml"),
            *headers.items(),
        ],
        # Before a message: a byte that tells whether it is compressed, and its length.
        b"\0" + struct.pack(">L", len(message)) + message,
        most_bytes=MOST_BYTES,
    )
    connected = False
    try:
        with _connect(endpoint, timeout_s) as connection:
            connected = True
            exchange(connection, unary, deadline)
            return message_of(unary, endpoint)
    except CallLost as error:
        raise errors.Unavailable(str(error)) from None
    except AnswerTooLarge as error:
        raise errors.TooLarge(str(error)) from None
    except NotHttp as error:
        raise errors.TransportError(
            f"{endpoint} does not answer in gRPC",
            hint="It may be no model service, or speak TLS (https://). See the addresses: cloudml "
            "models list",
        ) from error
    except OSError as error:
        client_error, _ = error_of_exception(
            endpoint, error, connected=connected, timeout_s=timeout_s
        )
        raise client_error from error


def exchange(connection: Socket, call: UnaryCall, deadline: float) -> None:
    """Send the request and receive until the answer is whole.

    Raises:
        OSError: The connection broke, or the deadline passed.
        NotHttp, CallLost, AnswerTooLarge: As ``UnaryCall.receive``.
    """
    unsent = call.begin()
    while not call.over:
        connection.settimeout(_left(deadline))
        if unsent:
            connection.sendall(unsent)
        connection.settimeout(_left(deadline))
        if not (arrived := connection.recv(_RECEIVED_AT_ONCE)):
            raise ConnectionResetError("the server hung up")
        unsent = call.receive(arrived)


def message_of(call: UnaryCall, endpoint: Endpoint) -> bytes:
    """The message of an answer.

    Raises:
        CloudMlError: What the status of the call means; ``TransportError`` if it has none.
        NotHttp: The body is no message.
    """
    status = call.fields.get("grpc-status", "")
    if not (status.isascii() and status.isdigit() and len(status) < 10):
        what = call.fields.get(":status", "nothing")
        raise errors.TransportError(
            f"{endpoint} answered {what} without a gRPC status; is it a model server?",
            hint="Call it over HTTP: --http",
        )
    if int(status):
        kind = _KINDS.get(int(status), errors.RequestError)
        raise kind(
            # The message is percent-encoded, as that protocol says of ``Status-Message``.
            unquote(call.fields.get("grpc-message", ""))
            or f"the call ended with gRPC status {status}"
        )
    answer = call.answer
    # Not compressed, since no compression was offered.
    if len(answer) < 5 or answer[0] or struct.unpack(">L", answer[1:5])[0] != len(answer) - 5:
        raise NotHttp("the answer is no message of gRPC")
    return bytes(answer[5:])


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connect(endpoint: Endpoint, timeout_s: float) -> socket.socket:
    plain = socket.create_connection(
        (endpoint.host, endpoint.port), timeout=min(timeout_s, _CONNECT_S)
    )
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _wrap_tls(plain, endpoint.host) if endpoint.secure else plain


def _wrap_tls(plain: socket.socket, host: str) -> ssl.SSLSocket:
    import ssl  # noqa: PLC0415 - only https pays for it

    context = ssl.create_default_context()
    # RFC 9113, section 3.2: over TLS both sides agree on HTTP/2 with ALPN; servers refuse clients
    # without.
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain, server_hostname=host)
