"""A client that talks to an ASGI application in process, down to the raw request line."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message


@dataclass
class Answer:
    """A whole response. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Exchange:
    """A request under way: what came back so far, and the ways to wait for more or to hang up."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    messages: asyncio.Queue[Message | None] = field(default_factory=asyncio.Queue)

    async def begin(self) -> None:
        message = await self.messages.get()
        assert message is not None, "the application ended without an answer"
        assert message["type"] == "http.response.start"
        self.status = message["status"]
        self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}

    async def chunks(self) -> AsyncIterator[bytes]:
        while (message := await self.messages.get()) is not None:
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return


class AsgiClient:
    """Sends requests as they would stand on the wire: nothing is encoded or decoded.

    A request without an id is given one that is always the same, so that whole answers can be
    compared.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] = b"",
        *,
        cut_off: bool = False,
        scheme: str = "http",
        client: str = "127.0.0.1",
    ) -> Answer:
        """The whole answer; with ``cut_off`` the client is gone before the body's end."""
        how = {"scheme": scheme, "client": client}
        async with self.open(method, target, headers, body, cut_off=cut_off, **how) as exchange:
            content = b"".join([chunk async for chunk in exchange.chunks()])
            return Answer(exchange.status, exchange.headers, content)

    @contextlib.asynccontextmanager
    async def open(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] = b"",
        *,
        cut_off: bool = False,
        scheme: str = "http",
        client: str = "127.0.0.1",
    ) -> AsyncIterator[Exchange]:
        """A request whose answer is read as it comes. Leaving the block hangs up."""
        exchange = Exchange()
        pieces = iter([body] if isinstance(body, bytes) else body)
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": scheme,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in ({"X-Request-Id": "test"} | dict(headers or {})).items()
            ],
            "client": (client, 1),
            "server": ("127.0.0.1", 80),
        }
        ended = False

        async def receive() -> Message:
            nonlocal ended
            if not ended:
                piece = next(pieces, None)
                if piece is not None:
                    return {"type": "http.request", "body": piece, "more_body": True}
                ended = True
                if not cut_off:
                    return {"type": "http.request", "body": b"", "more_body": False}
                exchange.hung_up.set()
            await exchange.hung_up.wait()
            return {"type": "http.disconnect"}

        async def run() -> None:
            try:
                await self.app(scope, receive, exchange.messages.put)
            finally:
                exchange.messages.put_nowait(None)

        running = asyncio.ensure_future(run())
        try:
            if not cut_off:
                await exchange.begin()
            yield exchange
        finally:
            exchange.hung_up.set()
            await running
