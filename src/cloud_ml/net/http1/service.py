"""What a connection asks of whoever serves its requests."""

from typing import Any, Protocol, TypeVar

from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.heads import Head

H = TypeVar("H")


class Service(Protocol[H]):
    """Understands heads, and answers requests."""

    def understand(self, head: Head) -> H:
        """What a head means; never raises, an error is a meaning too. May be kept for other
        requests.
        """

    def serve(self, call: HttpCall, meaning: H, body: Any) -> None:
        """Answer a whole request, now or later. The body is ``bytes``; see ``Limits.in_pieces``."""
