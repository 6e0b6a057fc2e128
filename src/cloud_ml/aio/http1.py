"""HTTP/1.1 as a client speaks it: one request and its answer on a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from cloud_ml.aio.wire import Wire
from cloud_ml.net.client.answer import Answer, Step

T = TypeVar("T")


class Response:
    """An answer from a connection: its head after ``begin``, then its body as it comes."""

    def __init__(self, wire: Wire, *, timeout_s: float) -> None:
        self._wire = wire
        self._timeout_s = timeout_s
        self._answer = Answer(wire)

    @property
    def status(self) -> int:
        """Such as 200."""
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Their names are in lower case; the last of a name counts."""
        return self._answer.headers

    @property
    def reusable(self) -> bool:
        """Whether the connection can serve another request: the body was read to its end."""
        return self._answer.reusable

    async def begin(self, method: str, *, last: bool = False) -> None:
        """Read the head; with ``last`` the connection shall serve no other request.

        Raises:
            OSError: The connection broke, or the server was silent for too long.
            NotHttp: This is no HTTP.
        """
        async with self._wire.within(self._timeout_s):
            await self._carried_out(self._answer.read_head(method, last=last))

    async def read_some(self) -> bytes:
        """The next bytes of the body; empty at its end. Raises as ``begin`` does."""
        if self._answer.over:
            return b""
        async with self._wire.within(self._timeout_s):
            most = await self._carried_out(self._answer.next_block())
            return self._answer.received(await self._wire.receive(most)) if most else b""

    async def _carried_out(self, step: Step[T]) -> T:
        try:
            next(step)
            while True:
                step.send(await self._wire.more())
        except StopIteration as done:
            value: T = done.value
            return value
