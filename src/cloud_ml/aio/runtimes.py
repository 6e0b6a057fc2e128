"""Runtimes over the modern surface."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.models import codec
from cloud_ml.models.jobs.framework import PreparationLine, Runtime, RuntimePage
from cloud_ml.sdk.messages import Request, segment
from cloud_ml.sdk.pieces import document_of

_PATH = "/api/v1/runtimes"


class AsyncRuntimeCalls:
    """One method for each operation on runtimes."""

    def __init__(self, transport: AsyncTransport) -> None:
        self.transport = transport

    async def list(self, framework: str | None = None) -> list[Runtime]:
        """Every runtime, or those of one framework."""
        path = f"{_PATH}/{segment(framework)}" if framework else _PATH
        return codec.decode(
            RuntimePage, await self.transport.json(Request("GET", path)), ignore_unknown=True
        ).items

    async def prepare(self, framework: str, version: str | None) -> AsyncGenerator[PreparationLine]:
        """What happens while a runtime is installed; asked when the first line is."""
        request = Request(
            "POST",
            f"{_PATH}/{segment(framework)}/prepare",
            query={"version": version},
            same_twice=True,
        )
        async with await self.transport.send(request) as answer:
            rest = b""
            async for chunk in answer:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    yield document_of(PreparationLine, line)

    async def remove(self, framework: str, version: str | None) -> None:
        """Remove what is installed of a runtime."""
        request = Request(
            "DELETE", f"{_PATH}/{segment(framework)}", query={"version": version}, same_twice=True
        )  # fmt: skip
        async with await self.transport.send(request) as answer:
            await answer.read()
