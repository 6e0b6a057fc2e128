"""A unary call, and the answers it can get."""

import struct
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote

from cloud_ml.net.http2.frames import literal
from cloud_ml.net.http2.service import Answers
from cloud_ml.serving.errors import ServingError

PREFIX = struct.Struct(">BL")
"""Before each message: whether it is compressed, and its length."""

CONTENT_TYPE = literal("content-type", "application/grpc")
OK_HEAD = b"\x88" + CONTENT_TYPE
OK_TRAILERS = literal("grpc-status", "0")
_LONGEST_MESSAGE = 4096


class MessageCall(Protocol):
    """A request that is answered with one message: a unary call, or one of many on a stream."""

    protocol: str
    deadline: float

    def waits(self) -> bool:
        """Whether the caller still waits."""

    def reply(self, parts: tuple[bytes, ...], size: int) -> None:
        """Answer with a message, given in pieces."""

    def fail(self, error: ServingError) -> None:
        """Answer with an error."""


class GrpcCall:
    """One call on one stream. ``deadline`` is in the loop's time, 0 for none."""

    protocol = "grpc"
    __slots__ = ("_connection", "_stream", "deadline")

    def __init__(self, connection: Answers, stream: int, deadline: float) -> None:
        self._connection = connection
        self._stream = stream
        self.deadline = deadline

    def waits(self) -> bool:
        """Whether the caller still waits."""
        return self._connection.waits(self._stream)

    def reply(self, parts: tuple[bytes, ...], size: int) -> None:
        """Answer with a message, given in pieces."""
        self._connection.answer(
            self._stream, OK_HEAD, (size + 5, (PREFIX.pack(0, size), *parts)), OK_TRAILERS
        )

    def fail(self, error: ServingError) -> None:
        """Answer with a status."""
        self._connection.answer(self._stream, status_block(error.grpc, error.message))


@lru_cache(256)
def status_block(code: int, message: str, http: int = 200) -> bytes:
    """The only block of headers of an answer without a message ("trailers only").

    ``http`` is another status than 200 where the answer may go to a client of HTTP as well.
    """
    status = b"\x88" if http == 200 else literal(":status", str(http))
    return status + CONTENT_TYPE + status_fields(code, message)


def status_fields(code: int, message: str) -> bytes:
    """The fields that end an answer that is an error."""
    text = quote(message[:_LONGEST_MESSAGE], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
    return literal("grpc-status", str(code)) + literal("grpc-message", text)
