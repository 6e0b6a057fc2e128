"""One call over gRPC, on a connection of its own: HTTP/2 as far as a client with one request
needs it.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote

from cloud_ml import errors
from cloud_ml.net.client.errors import NotHttp
from cloud_ml.net.client.header_blocks import Headers, packed
from cloud_ml.sdk.endpoint import Endpoint
from cloud_ml.sdk.failures import error_of_exception

if TYPE_CHECKING:
    import ssl

MOST_BYTES = 256 << 20
"""Of an answer."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = (
    0,
    1,
    3,
    4,
    6,
    7,
    8,
    9,
)
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _WITH_PRIORITY = 1, 1, 4, 8, 32
_LARGEST_WINDOW = 2**31 - 1
_WINDOW, _FRAME = 65_535, 16_384
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
    connected = False
    try:
        with _Connection(endpoint, timeout_s) as connection:
            connected = True
            return connection.ask(method, message, headers)
    except (OSError, NotHttp) as error:
        told, _ = error_of_exception(endpoint, error, connected=connected, timeout_s=timeout_s)
        raise told from error


class _Connection:
    """A connection that serves one call."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self.prepare(endpoint, timeout_s)
        plain = socket.create_connection(
            (endpoint.host, endpoint.port), timeout=min(timeout_s, 10.0)
        )
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: socket.socket | ssl.SSLSocket = (
            _secured(plain, endpoint.host) if endpoint.secure else plain
        )

    def prepare(self, endpoint: Endpoint, timeout_s: float) -> None:
        """What is known before anything was sent."""
        self._endpoint = endpoint
        self._deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._arrived = bytearray()
        self._window = {0: _WINDOW, 1: _WINDOW}
        self._initial, self._frame = _WINDOW, _FRAME
        self._headers = Headers()
        self._answer = bytearray()
        self._fields: dict[str, str] = {}
        self._block: bytearray | None = None
        self._block_ends = self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, method: str, message: bytes, headers: Mapping[str, str]) -> bytes:
        """Send the request and read frames until the answer is whole."""
        settings = struct.pack(">HLHL", 2, 0, 4, _LARGEST_WINDOW)
        block = packed(
            [
                (":method", "POST"),
                (":scheme", self._endpoint.scheme),
                (":path", method),
                (":authority", self._endpoint.authority),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("grpc-timeout", f"{max(1, int(1000 * self._timeout_s))}m"),
                ("user-agent", "cloudml"),
                *headers.items(),
            ]
        )
        self._send(
            _PREFACE + _frame(_SETTINGS, 0, 0, settings)
            + _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">L", _LARGEST_WINDOW - _WINDOW))
            + _frame(_HEADERS, _END_HEADERS, 1, block)
        )  # fmt: skip
        body = memoryview(b"\0" + struct.pack(">L", len(message)) + message)
        while body and not self._over:
            room = min(self._window[0], self._window[1], self._frame, len(body))
            if room <= 0:
                self._read_frame()
                continue
            piece, body = body[:room], body[room:]
            for stream in (0, 1):
                self._window[stream] -= room
            self._send(_frame(_DATA, 0 if body else _END_STREAM, 1, bytes(piece)))
        while not self._over:
            self._read_frame()
        return self._message()

    def _message(self) -> bytes:
        status = self._fields.get("grpc-status", "")
        if not status.isdigit():
            what = self._fields.get(":status", "nothing")
            raise errors.TransportError(
                f"{self._endpoint} answered {what} without a gRPC status; is it a model server?",
                hint="Call it over HTTP: --http",
            )
        if int(status):
            kind = _KINDS.get(int(status), errors.RequestError)
            raise kind(
                unquote(self._fields.get("grpc-message", ""))
                or f"the call ended with gRPC status {status}"
            )
        if (
            len(self._answer) < 5
            or self._answer[0]
            or struct.unpack(">L", self._answer[1:5])[0] != len(self._answer) - 5
        ):
            raise NotHttp("the answer is no message of gRPC")
        return bytes(self._answer[5:])

    def _read_frame(self) -> None:
        head = self._take(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        stream = int.from_bytes(head[5:], "big") & _LARGEST_WINDOW
        if size > _FRAME:
            raise NotHttp("a frame is too large")
        payload = self._take(size)
        if kind == _SETTINGS and not flags & _ACK:
            self._heed(payload)
            self._send(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW_UPDATE and stream in self._window:
            self._window[stream] += int.from_bytes(payload, "big") & _LARGEST_WINDOW
        elif kind == _GOAWAY and int.from_bytes(payload[:4], "big") < 1:
            raise errors.Unavailable("the server went away before it took the call")
        elif stream == 1:
            self._of_stream(kind, flags, payload)

    def _of_stream(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _RST_STREAM:
            self._over = True
            if "grpc-status" not in self._fields:
                raise errors.Unavailable("the server gave the call up")
            return
        if kind in (_HEADERS, _DATA):
            payload = _content(kind, flags, payload)
        if kind == _DATA:
            self._answer += payload
            if len(self._answer) > MOST_BYTES:
                raise errors.TooLarge(f"the answer is larger than {MOST_BYTES} bytes")
        elif kind == _HEADERS:
            self._block, self._block_ends = bytearray(payload), bool(flags & _END_STREAM)
        elif kind == _CONTINUATION and self._block is not None:
            self._block += payload
            if len(self._block) > _FRAME * 4:
                raise NotHttp("a block of headers is too large")
        if kind in (_HEADERS, _CONTINUATION) and flags & _END_HEADERS and self._block is not None:
            self._fields |= self._headers.read(bytes(self._block))
            self._block, self._over = None, self._block_ends
        elif kind == _DATA and flags & _END_STREAM:
            self._over = True

    def _heed(self, payload: bytes) -> None:
        for place in range(0, len(payload) - 5, 6):
            name, value = struct.unpack_from(">HL", payload, place)
            if name == 4:
                self._window[1] += value - self._initial
                self._initial = value
            elif name == 5:
                self._frame = min(max(value, _FRAME), 1 << 20)

    def _send(self, content: bytes) -> None:
        self._socket.settimeout(self._left())
        self._socket.sendall(content)

    def _take(self, size: int) -> bytes:
        while len(self._arrived) < size:
            self._socket.settimeout(self._left())
            if not (some := self._socket.recv(65_536)):
                raise ConnectionResetError("the server hung up")
            self._arrived += some
        found = bytes(self._arrived[:size])
        del self._arrived[:size]
        return found

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"there was no answer within {self._timeout_s:g} s")
        return left


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBL", kind, flags, stream) + payload


def _content(kind: int, flags: int, payload: bytes) -> bytes:
    """A frame's payload without its padding and, of headers, without a priority."""
    begin, end = 0, len(payload)
    if flags & _PADDED:
        begin, end = 1, end - payload[0] if payload else -1
    if kind == _HEADERS and flags & _WITH_PRIORITY:
        begin += 5
    if end < begin:
        raise NotHttp("a frame is padded beyond its end")
    return payload[begin:end]


def _secured(plain: socket.socket, host: str) -> ssl.SSLSocket:
    import ssl  # noqa: PLC0415 - only https pays for it

    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain, server_hostname=host)
