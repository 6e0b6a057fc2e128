"""Calls of more than one message, either way: rare ones, so they cost the others nothing."""

import logging
from collections.abc import Callable
from typing import Protocol

from cloud_ml.net.http2.service import Answers
from cloud_ml.net.tuning import MESSAGES_IN_TURN
from cloud_ml.serving.errors import BadRequest, ServingError, TooLarge
from cloud_ml.serving.grpc.calls import OK_HEAD, OK_TRAILERS, PREFIX, status_fields

log = logging.getLogger(__name__)

LONGEST = 1 << 20
"""Bytes of a message that a caller may send on a stream of names to look up; streams of tensors
take more.
"""
MOST_UNREAD = 262_144
"""Bytes of answers that the caller has not read, from which on its messages wait; the default of
a setting.
"""
MESSAGE_UNITS = 16
"""Units of work of a message; see ``WorkShare``."""


class Talk(Protocol):
    """The server's side of a call.

    ``longest`` bounds a message of the caller. ``unread_bytes`` of answers may lie unread; 0 is the
    bound of the connection.
    """

    longest: int = LONGEST
    unread_bytes: int = 0

    def receive(self, body: bytes) -> None:
        """A message came."""

    def ended(self) -> None:
        """The caller has said everything."""


class GrpcStream:
    """The way back to the caller, and the messages from it: see ``net.http2.stream.Sink``.

    ``deadline`` is in the loop's time, 0 for none. Messages wait while the caller leaves more than
    ``unread_bytes`` of answers unread, and when this turn's work is done; meanwhile the caller may
    send no more than its window.
    """

    def __init__(
        self,
        connection: Answers,
        number: int,
        method: "StreamMethod",
        deadline: float = 0.0,
        unread_bytes: int = MOST_UNREAD,
    ) -> None:
        self._unread_bytes = unread_bytes
        self._connection = connection
        self._number = number
        self.deadline = deadline
        self._rest = bytearray()
        self._begun = False
        self._ended = False
        self._stopped = False  # messages wait
        self._talk = method(self)

    def waits(self) -> bool:
        """Whether the caller is still there."""
        return self._connection.waits(self._number)

    def send(self, message: bytes) -> None:
        """A message to the caller."""
        self._begin()
        data = PREFIX.pack(0, len(message)) + message
        most = self._talk.unread_bytes
        self._connection.push(self._number, data, max(most, self._unread_bytes) if most else 0)

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
        self._rest += data
        self._ended = ended
        self._try(self._hold_rest if self._stopped else self._read)

    def _go_on(self) -> None:
        """Read messages that have waited."""
        self._stopped = False
        if self.waits():
            self._try(self._read)

    def _try(self, work: Callable[[], None]) -> None:
        """Do something; an error ends the call."""
        try:
            work()
        except ServingError as error:
            self.finish(error)
        except Exception:
            log.exception("a call failed")
            self.finish(ServingError("the server failed; its log says why"))

    def _read(self) -> None:
        """Read the messages that came, as far as the caller and this turn allow."""
        for _ in range(MESSAGES_IN_TURN):
            if self._connection.unread(self._number) > self._unread_bytes:
                self._stop()
                self._connection.when_read(self._number, self._go_on)
                return
            body = self._next()
            if body is None:
                self._read_all()
                return
            self._talk.receive(body)
            if not self.waits():
                return
        self._stop()
        self._connection.defer(self._go_on, MESSAGES_IN_TURN * MESSAGE_UNITS)

    def _read_all(self) -> None:
        """No whole message is left."""
        self._hold_rest()
        if self._ended:
            self._last()
        else:
            self._connection.resume(self._number)

    def _stop(self) -> None:
        """Read no message until ``_go_on``."""
        self._stopped = True
        self._connection.pause(self._number)
        self._hold_rest()

    def _hold_rest(self) -> None:
        """Count what came of the next message."""
        if not self._connection.hold(self._number, len(self._rest)):
            raise TooLarge(
                "the server holds too many requests that are not whole; send this one again later"
            )

    def _next(self) -> bytes | None:
        """The next whole message."""
        if len(self._rest) < 5:
            return None
        compressed, size = PREFIX.unpack_from(self._rest)
        if size > self._talk.longest:
            raise TooLarge(
                f"a message of {size} bytes; {self._talk.longest} are read on this stream"
            )
        if compressed:
            raise BadRequest("compressed messages are not read on a stream")
        if len(self._rest) < size + 5:
            return None
        # Released before the `del`: a bytearray that a memoryview exports cannot be resized.
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
