"""One request and its answer."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from cloud_ml.net.budget import COUNTED
from cloud_ml.net.compression import Defer, Deflater, SlicedWork
from cloud_ml.net.errors import ServingError
from cloud_ml.net.pieces import Pieces, gather_pieces, pieces_of
from cloud_ml.net.tuning import UNJOINED_BYTES

if TYPE_CHECKING:
    from cloud_ml.net.http1.heads import Head
    from cloud_ml.net.http1.limits import Limits

JSON = b"Content-Type: application/json\r\n"
TEXT = b"Content-Type: text/plain; charset=utf-8\r\n"

_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def _length(size: int) -> bytes:
    """The last line of a head, and the empty one after it."""
    return b"Content-Length: %d\r\n\r\n" % size


_LENGTHS = [_length(size) for size in range(1024)]
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class CallConnection(Protocol):
    """What a call asks of the connection that it came on."""

    @property
    def open(self) -> bool: ...
    @property
    def leaving(self) -> bool: ...
    @property
    def limits(self) -> "Limits": ...
    @property
    def date(self) -> bytes: ...
    def defer(self, work: Callable[[], None], units: int) -> None: ...
    def count_unread(self, size: int) -> None: ...
    def begin_long(self) -> None: ...
    def answered(self) -> None: ...


class HttpCall:
    """A request that was read. ``done`` is true once ``answer`` is whole. ``deadline`` is in loop's
    time.

    ``rest`` are pieces of a long answer that are written behind it; short answers have none.
    """

    protocol = "http"
    __slots__ = ("_connection", "answer", "close", "deadline", "done", "head", "rest", "size")
    rest: Sequence[bytes | bytearray]

    def __init__(self, connection: "CallConnection", head: "Head", deadline: float) -> None:
        self._connection = connection
        self.head = head
        self.deadline = deadline
        self.close = head.close
        self.done = False
        self.size = 0
        self.answer = b""

    def waits(self) -> bool:
        """Whether the caller still waits."""
        return self._connection.open and not self.done

    def within(self, seconds: float) -> None:
        """The caller waits no longer than this."""
        self.deadline += min(0.0, seconds - self._connection.limits.answer_s)

    def json(self, body: bytes, status: int = 200) -> None:
        """Answer with a document."""
        self.reply(status, JSON, body)

    def reply(
        self, status: int, fields: bytes, body: bytes | Pieces, *, packed: bool = False
    ) -> None:
        """Answer. ``fields`` are lines of the head: the type of the body, and more."""
        if self.done or not self._connection.open:
            return
        head, connection, size = self.head, self._connection, len(body)
        if size >= connection.limits.compress_bytes and head.accepts and not packed:
            self._pack(status, fields, body, connection.defer)
            return
        if head.answer_fields:
            fields += head.answer_fields
        if connection.leaving:
            self.close = True
        if self.close:
            fields += b"Connection: close\r\n"
        # RFC 9112, section 9.3: HTTP/1.0 connections persist only where both sides say so.
        elif head.old:
            fields += b"Connection: keep-alive\r\n"
        length = _LENGTHS[size] if size < len(_LENGTHS) else _length(size)
        # RFC 9110, section 9.3.2: the length is that of the body that GET would get.
        if head.method == "HEAD":
            body = b""
        if size < UNJOINED_BYTES:
            text: Any = body  # no body in pieces is so short
            self.answer = b"".join((_LINES[status], connection.date, fields, length, text))
        else:
            self.answer = b"".join((_LINES[status], connection.date, fields, length))
            if body:
                self.rest = pieces_of(body)
                connection.begin_long()
        self.done = True
        if connection.limits.unread_budget is not None and size >= COUNTED:
            connection.count_unread(size)
        connection.answered()

    def _pack(self, status: int, fields: bytes, body: bytes | Pieces, defer: Defer) -> None:
        """Compress a body and answer, a long one in several turns."""
        packer = Deflater(body, self.head.accepts)
        fields += b"Content-Encoding: %b\r\nVary: Accept-Encoding\r\n" % self.head.accepts.encode()

        def done() -> None:
            self.reply(status, fields, gather_pieces(packer.parts), packed=True)

        SlicedWork(packer, defer=defer, still_needed=self.open, done=done, failed=self.fail).run()

    def open(self) -> bool:
        """Whether the caller is still there."""
        return self._connection.open

    def fail(self, error: ServingError) -> None:
        """Answer with an error, as TensorFlow Serving and the Open Inference Protocol write it."""
        self.refuse(error.http, error.message)

    def refuse(self, status: int, why: str, fields: bytes = b"") -> None:
        """Answer with an error of HTTP's own."""
        self.reply(
            status, JSON + fields, orjson.dumps({"error": why.encode("utf-8", "replace").decode()})
        )


def rest_of(call: HttpCall) -> Sequence[bytes | bytearray]:
    """The pieces of a long answer; none of a short one."""
    return getattr(call, "rest", ())
