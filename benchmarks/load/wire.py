"""A client that costs little: it shares its cores with the server that it measures.

Requests are bytes that were signed before; of an answer it reads what tells its end. Its own CPU is
reported apart.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from cloud_ml.auth import signature

_END = b"\r\n\r\n"
_FRESH_S = 1.0
"""So long may a connection have been idle and be used again: less than any server of ours here
keeps one.
"""
_LENGTH = b"\r\ncontent-length: "


@dataclass(frozen=True, slots=True)
class Signer:
    """Makes requests of one key, whole and signed. A read may be sent again and again, a change
    once.
    """

    key: str
    secret: str

    def request(self, method: str, target: str, document: object = None, **headers: str) -> bytes:
        """The bytes of a request; ``document`` is its JSON body."""
        body = b"" if document is None else json.dumps(document, separators=(",", ":")).encode()
        signed = signature.sign(
            method, target, key=self.key, secret=self.secret, now=datetime.now(UTC),
            content=signature.content_sha256(body),
        )  # fmt: skip
        all_headers = {
            "Host": "bench",
            **signed,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        if method != "GET":
            all_headers |= {"Content-Length": str(len(body)), "Content-Type": "application/json"}
        head = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
        return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    head: bytes
    body: bytes

    def document(self) -> dict[str, object]:
        """The body as JSON."""
        found: dict[str, object] = json.loads(self.body)
        return found


AnswerCallback = Callable[[Answer], None]


class Wire(asyncio.Protocol):
    """A connection that is kept; one request at a time, whose answer ``callback`` hears of."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._callback: AnswerCallback | None = None
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, request: bytes, callback: AnswerCallback) -> None:
        """Send a request."""
        assert self._transport is not None
        assert self._callback is None
        self._callback = callback
        if self._transport.is_closing():  # nobody would ever tell
            asyncio.get_running_loop().call_soon(self.connection_lost, None)
        self._transport.write(request)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._got = self._got + data if self._got else data
        end = self._got.find(_END)
        if end < 0:
            return
        head = self._got[: end + 2].lower()
        at = head.find(_LENGTH)
        if at >= 0:
            start = at + len(_LENGTH)
            stop = end + 4 + int(head[start : head.index(b"\r", start)])
            if len(self._got) < stop:
                return
        elif b"chunked" in head:
            if not self._got.endswith(b"0\r\n\r\n"):
                return
            stop = len(self._got)
        else:
            stop = end + 4
        answer = Answer(int(head[9:12]), head, self._got[end + 4 : stop])
        self._got = b""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(Answer(0, b"", b""))


async def connect(endpoint: str) -> Wire:
    """A connection to the server."""
    place = urlsplit(endpoint)
    loop = asyncio.get_running_loop()
    _, wire = await loop.create_connection(Wire, place.hostname, place.port)
    return wire


async def ask(wire: Wire, request: bytes) -> Answer:
    """Send a request and wait for its answer."""
    answered = asyncio.get_running_loop().create_future()
    wire.ask(request, answered.set_result)
    found: Answer = await answered
    return found


class Pool:
    """Connections to one server: as many as are needed at once, each used again while the server
    surely keeps it.

    One that a server hangs up on in the moment of a request would count as a request that failed.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._idle: list[tuple[Wire, float]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.opened = 0

    def ask(self, request: bytes, callback: AnswerCallback) -> None:
        """Send a request on a connection that is free, or on a new one."""
        if self._idle:
            wire, since = self._idle.pop()
            if time.monotonic() - since < _FRESH_S:
                self._send(wire, request, callback)
                return
            wire.close()
            self.close()  # those below have waited longer
        task = asyncio.get_running_loop().create_task(self._open(request, callback))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, request: bytes, callback: AnswerCallback) -> None:
        self.opened += 1
        self._send(await connect(self._endpoint), request, callback)

    def _send(self, wire: Wire, request: bytes, callback: AnswerCallback) -> None:
        def back(answer: Answer) -> None:
            if answer.status:
                self._idle.append((wire, time.monotonic()))
            callback(answer)

        wire.ask(request, back)

    def close(self) -> None:
        """Hang up on all that are idle."""
        for wire, _ in self._idle:
            wire.close()
        self._idle.clear()
