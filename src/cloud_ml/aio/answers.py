"""An answer while it is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Self

from cloud_ml.aio.http1 import Response
from cloud_ml.errors import CloudMlError
from cloud_ml.net.client.errors import NotHttp


class AsyncAnswer:
    """A server's answer whose body is read as it arrives. Close it, or use it in an ``async with``
    block.

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        """The body in chunks, each as soon as it arrives.

        Raises:
            TransportError: The connection broke before the end, or the server was silent for too
                long.
        """
        while chunk := await self.read_some():
            yield chunk

    async def read_some(self) -> bytes:
        """The next bytes; empty at the end. Raises as iteration does."""
        try:
            return await self._response.read_some()
        except (OSError, NotHttp) as error:
            self.close()
            raise self._explain(error) from error

    async def read(self) -> bytes:
        """The whole body, after which the connection serves the next request. Raises as
        iteration does.
        """
        body = b"".join([chunk async for chunk in self])
        self.close()
        return body

    def close(self) -> None:
        """Leave the rest unread. Nothing is waited for: this is safe while a task is being
        cancelled.
        """
        if self._done is not None:
            done, self._done = self._done, None
            done(self._response.reusable)
