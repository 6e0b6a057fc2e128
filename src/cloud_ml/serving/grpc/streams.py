"""Calls of more than one message, either way: rare ones, so they cost the others nothing."""

import logging
from collections.abc import Callable
from typing import Protocol

from cloud_ml.serving.errors import BadRequest, ServingError, TooLarge
from cloud_ml.serving.grpc.calls import OK_HEAD, OK_TRAILERS, PREFIX, status_fields
from cloud_ml.serving.http2.service import Answers

log = logging.getLogger(__name__)

LONGEST = 1 << 20
"""Bytes of a message that a caller may send on a stream of names to look up; streams of tensors take more."""


class Talk(Protocol):
    """The server's side of a call.

    ``longest`` bounds a message of the caller. ``unread_bytes`` of answers may lie unread; 0 is the bound of the
    connection.
    """

    longest: int = LONGEST
    unread_bytes: int = 0

    def heard(self, body: bytes) -> None:
        """A message came."""

    def ended(self) -> None:
        """The caller has said everything."""


class GrpcStream:
    """The way back to the caller, and the messages from it: see ``http2.stream.Sink``.

    ``deadline`` is in the loop's time, 0 for none.
    """

    def __init__(self, connection: Answers, number: int, method: "StreamMethod", deadline: float = 0.0) -> None:
        self._connection = connection
        self._number = number
        self.deadline = deadline
        self._rest = bytearray()
        self._begun = False
        self._talk = method(self)

    def waits(self) -> bool:
        """Whether the caller is still there."""
        return self._connection.waits(self._number)

    def send(self, message: bytes) -> None:
        """A message to the caller."""
        self._begin()
        data = PREFIX.pack(0, len(message)) + message
        self._connection.push(self._number, data, self._talk.unread_bytes)

    def finish(self, error: ServingError | None = None) -> None:
        """The last word."""
        self._begin()
        self._connection.finish(
            self._number, OK_TRAILERS if error is None else status_fields(error.grpc, error.message)
        )

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._connection.begin(self._number, OK_HEAD)

    def data(self, data: bytes, *, ended: bool) -> None:
        """Bytes that came; ``ended`` with the last of them."""
        try:
            self._rest += data
            while (body := self._next()) is not None and self.waits():
                self._talk.heard(body)
            self._hold_rest()
            if ended:
                self._last()
        except ServingError as error:
            self.finish(error)
        except Exception:
            log.exception("a call failed")
            self.finish(ServingError("the server failed; its log says why"))

    def _hold_rest(self) -> None:
        """Count what came of the next message."""
        if not self._connection.hold(self._number, len(self._rest)):
            raise TooLarge("the server holds too many requests that are not whole; send this one again later")

    def _next(self) -> bytes | None:
        """The next whole message."""
        if len(self._rest) < 5:
            return None
        compressed, size = PREFIX.unpack_from(self._rest)
        if size > self._talk.longest:
            raise TooLarge(f"a message of {size} bytes; {self._talk.longest} are read on this stream")
        if compressed:
            raise BadRequest("compressed messages are not read on a stream")
        if len(self._rest) < size + 5:
            return None
        with memoryview(self._rest) as come:
            body = bytes(come[5 : size + 5])
        del self._rest[: size + 5]
        return body

    def _last(self) -> None:
        if self._rest:
            raise BadRequest("the stream ended inside a message")
        self._talk.ended()


StreamMethod = Callable[[GrpcStream], Talk]
"""Begins the server's side of a call."""
