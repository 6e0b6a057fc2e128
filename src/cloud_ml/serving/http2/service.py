"""What a connection asks of whoever serves its requests."""

from typing import TYPE_CHECKING, Protocol, TypeVar

from cloud_ml.serving.http2.stream import Received, Sink

if TYPE_CHECKING:
    from cloud_ml.serving.http2.connection import Http2Connection

H = TypeVar("H")


class Service(Protocol[H]):
    """Understands heads, and answers requests."""

    def understand(self, fields: list[tuple[bytes, bytes]]) -> H:
        """What the head of a request means; never raises, an error is a meaning too. May be kept for other requests."""

    def length(self, head: H, begun: memoryview) -> int:
        """How long a body will be, as its first bytes tell; 0 where they do not."""

    def serve(self, connection: "Http2Connection[H]", stream: int, head: H, body: Received) -> None:
        """Answer a whole request, now or later, by ``connection.answer``, or take it piece by piece: ``listen``."""

    def sink(self, connection: "Http2Connection[H]", stream: int, head: H) -> Sink | None:
        """Who takes the body as it comes; None where it is wanted whole."""
