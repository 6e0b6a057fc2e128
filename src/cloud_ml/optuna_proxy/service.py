"""Unary gRPC calls of Optuna's client, each passed on as one request to the server."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote

from cloud_ml.errors import (
    AlreadyExists,
    CloudMlError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    TooLarge,
    TransportError,
    TryAgain,
    Unauthenticated,
)
from cloud_ml.net.http2.frames import literal
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Received, Sink

Call = Callable[[str, bytes, str], Awaitable[bytes]]
"""Passes on a method, its message and a key that no other call has; returns the answer."""
_SERVICE = b"/optuna.StorageService/"
_AT_ONCE = 32
_LONGEST_MESSAGE = 2_000
_PREFIX_BYTES = 5
_TYPE = literal("content-type", "application/grpc")
# 0x88 is ``:status: 200`` of HPACK's static table (RFC 7541, appendix A).
_OK, _OK_HEAD, _OK_TRAILERS = b"\x88", b"\x88" + _TYPE, literal("grpc-status", "0")
_INVALID, _RESOURCE, _UNIMPLEMENTED, _UNKNOWN = 3, 8, 12, 2
_STATUS: dict[type[CloudMlError], int] = {
    QuotaExceeded: _RESOURCE,
    TooLarge: _RESOURCE,
    InvalidRequest: _INVALID,
    NotFound: 5,
    AlreadyExists: 6,
    Forbidden: 7,
    Conflict: 9,
    TryAgain: 14,
    TransportError: 14,
    Unauthenticated: 16,
}
"""Codes of gRPC. Optuna's client makes exceptions of its own of 3, 5, 6 and 9."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a request means: a method, or why it is refused."""

    method: str = ""
    refusal: bytes = b""


class OptunaService:
    """Answers the calls of one port.

    Args:
        call: Passes a call on.
        loop: Runs it.
    """

    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        self._call = call
        self._loop = loop
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()

    def understand(self, fields: list[tuple[bytes, bytes]]) -> Head:
        """See ``net.http2.service.Service``."""
        headers = dict(fields)
        if headers.get(b":method") != b"POST":
            return Head(refusal=literal(":status", "405"))
        if not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            return Head(refusal=literal(":status", "415"))
        path = headers.get(b":path", b"")
        name = path.removeprefix(_SERVICE)
        if name == path or not name.isalpha() or len(name) > 100:
            return Head(refusal=status_block(_UNIMPLEMENTED, "only optuna.StorageService is here"))
        if headers.get(b"grpc-encoding", b"identity") != b"identity":
            return Head(refusal=status_block(_UNIMPLEMENTED, "messages must not be compressed"))
        return Head(method=name.decode("ascii"))

    def length(self, head: Head, begun: memoryview) -> int:
        """See ``net.http2.service.Service``."""
        whole = len(begun) >= _PREFIX_BYTES
        return int.from_bytes(begun[1:_PREFIX_BYTES], "big") + _PREFIX_BYTES if whole else 0

    def sink(self, connection: Answers, stream: int, head: Head) -> Sink | None:
        """See ``net.http2.service.Service``."""
        return None

    def serve(self, connection: Answers, stream: int, head: Head, body: Received) -> None:
        """See ``net.http2.service.Service``."""
        if head.refusal:
            connection.answer(stream, head.refusal)
            return
        # Before a message of gRPC: a byte that tells whether it is compressed, and four with its
        # length.
        framed = len(body) >= _PREFIX_BYTES and body[0] == 0
        if not framed or int.from_bytes(body[1:_PREFIX_BYTES], "big") + _PREFIX_BYTES != len(body):
            message = "the body is not one uncompressed message"
            connection.answer(stream, status_block(_INVALID, message))
            return
        passed = self._pass_on(connection, stream, head.method, bytes(body[_PREFIX_BYTES:]))
        task = self._loop.create_task(passed)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _pass_on(self, connection: Answers, stream: int, method: str, message: bytes) -> None:
        try:
            async with self._places:
                answer = await self._call(method, message, secrets.token_urlsafe(18))
        except CloudMlError as error:
            # The client may have given up meanwhile: a stream that is reset gets no answer.
            if connection.waits(stream):
                connection.answer(stream, status_block(code_of(error), error.message))
            return
        if connection.waits(stream):
            framed = b"\0" + len(answer).to_bytes(4, "big") + answer
            connection.answer(stream, _OK_HEAD, (len(framed), (framed,)), _OK_TRAILERS)


def code_of(error: CloudMlError) -> int:
    """The code of gRPC for an error of ours."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), _UNKNOWN)


def status_block(code: int, message: str) -> bytes:
    """The only headers of an answer without a message."""
    # gRPC's ``Status-Message`` is percent-encoded; only what is visible in ASCII, and no ``%``,
    # stays.
    text = quote(message[:_LONGEST_MESSAGE], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
    return _OK + _TYPE + literal("grpc-status", str(code)) + literal("grpc-message", text)
