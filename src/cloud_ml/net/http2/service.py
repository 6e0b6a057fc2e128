"""What a connection asks of whoever serves its requests, and what those ask of it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from cloud_ml.net.http2.outgoing import EMPTY, Sized
from cloud_ml.net.http2.stream import Received, Sink
from cloud_ml.net.pieces import Body

H = TypeVar("H")


class Answers(Protocol):
    """The way back on a connection: ``StreamTable`` says what each does."""

    def waits(self, number: int) -> bool: ...
    def answer(
        self, number: int, head: bytes, body: Sized = EMPTY, trailers: bytes = b""
    ) -> None: ...
    def respond(self, number: int, head: bytes, body: Body) -> None: ...
    def listen(self, number: int, body: Received) -> None: ...
    def begin(self, number: int, head: bytes) -> None: ...
    def push(self, number: int, data: bytes, unread_bytes: int = 0) -> None: ...
    def hold_body(self, number: int, size: int) -> bool: ...
    def hold(self, number: int, size: int) -> bool: ...
    def finish(self, number: int, trailers: bytes) -> None: ...
    def unread(self, number: int) -> int: ...
    def when_read(self, number: int, resume: Callable[[], None]) -> None: ...
    def pause(self, number: int) -> None: ...
    def resume(self, number: int) -> None: ...
    def defer(self, resume: Callable[[], None], units: int) -> None: ...


class Service(Protocol[H]):
    """Understands heads, and answers requests."""

    def understand(self, fields: list[tuple[bytes, bytes]]) -> H:
        """What the head of a request means; never raises, an error is a meaning too. May be kept
        for other requests.
        """

    def length(self, head: H, begun: memoryview) -> int:
        """How long a body will be, as its first bytes tell; 0 where they do not."""

    def serve(self, connection: Answers, stream: int, head: H, body: Received) -> None:
        """Answer a whole request, now or later, by ``connection.answer``, or take it piece by
        piece: ``listen``.
        """

    def sink(self, connection: Answers, stream: int, head: H) -> Sink | None:
        """Who takes the body as it comes; None where it is wanted whole."""
