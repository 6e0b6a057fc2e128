"""An answer while it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

from cloud_ml.errors import CloudMlError
from cloud_ml.net.client.errors import NotHttp
from cloud_ml.sdk.http1 import Response


class Answer:
    """A server's answer whose body is read as it arrives. Close it, or use it in a ``with`` block.

    A body that was read to its end gives its connection back; any other closes it. Names of
    ``headers`` are in lower case.
    """

    def __init__(
        self,
        response: Response,
        *,
        explain: Callable[[Exception], CloudMlError],
        done: Callable[[bool], None],
    ) -> None:
        self._response = response
        self._explain = explain
        self._done: Callable[[bool], None] | None = done
        self.status = response.status
        self.headers = response.headers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """The body in chunks, each as soon as it arrives.

        Raises:
            TransportError: The connection broke before the end, or the server was silent for too
                long.
        """
        while chunk := self.read_some():
            yield chunk

    def read_some(self) -> bytes:
        """The next bytes; empty at the end. Raises as iteration does."""
        try:
            return self._response.read_some()
        except (OSError, NotHttp) as error:
            self.close()
            raise self._explain(error) from error

    def read(self) -> bytes:
        """The whole body, after which the connection serves the next request. Raises as
        iteration does.
        """
        body = b"".join(self)
        self.close()
        return body

    def close(self) -> None:
        """Leave the rest unread."""
        if self._done is not None:
            done, self._done = self._done, None
            done(self._response.reusable)
