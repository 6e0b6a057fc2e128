"""HTTP/1.1 on both sides, beside a second reader."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import logging
from typing import Any

import h11
import uvicorn
from uvicorn.server import ServerState

from cloud_ml.aio.http1 import Response
from cloud_ml.api.http1 import Bounds, make_protocol
from cloud_ml.net.client.errors import NotHttp
from cloud_ml.sdk import http1
from fuzz.harness import cuts, target

Seen = list[tuple[str, bytes, bytes]]
_LOOP = asyncio.new_event_loop()
_BOUNDS = Bounds(
    connections=5,
    header_bytes=2048,
    header_count=20,
    header_timeout_s=60,
    body_timeout_s=60,
    write_timeout_s=60,
)
logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


class _Transport(asyncio.Transport):
    """Keeps what is written; one end of nothing."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "something is written on a connection that was closed"
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass


async def _served(chunks: list[bytes]) -> tuple[Seen, bytes]:
    """The requests that the server understands in what arrives, and what it answers."""
    seen: Seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                seen.append(
                    (scope["method"], scope["raw_path"] + b"?" + scope["query_string"], body)
                )
                break
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
        )
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(
        app,
        http=make_protocol(_BOUNDS, lambda _why: None),
        lifespan="off",
        log_config=None,
        access_log=False,
        ws="none",
        date_header=False,
        server_header=False,
    )
    config.load()
    loop = asyncio.get_running_loop()
    made: Any = config.http_protocol_class
    protocol = made(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    transport = _Transport()
    protocol.connection_made(transport)
    for chunk in chunks:
        if not transport.closed:
            protocol.data_received(chunk)
        for _ in range(3):
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    return seen, transport.written


def _reference(data: bytes) -> Seen | None:
    """The requests that a second, strict reader understands, up to the first that is not whole;
    ``None``: it refuses.
    """
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 16)
    connection.receive_data(data)
    seen: Seen = []
    try:
        while True:
            event = connection.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED):
                return seen
            if isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                seen.append((head.method.decode(), head.target, body))
                connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    return seen
                connection.start_next_cycle()
            else:
                return seen
    except h11.ProtocolError:  # upgrades it leaves to others, too
        return None


GET = b"GET /a?b=%20 HTTP/1.1\r\nHost: x\r\n\r\n"


@target(
    "api.http1",
    seeds=[
        GET, GET + GET, b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" + GET,
        b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n0\r\nT: v\r\n\r\n" + GET,
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET,
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", b"GET / HTTP/1.1\nHost: x\n\n", b"GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
        b"GET http://h/a HTTP/1.1\r\nHost: x\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", b"CONNECT h:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nx", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", GET + b"0\r\n\r\n",
    ],
    words=["GET ", "POST ", " HTTP/1.1\r\n", "Content-Length: ", "Transfer-Encoding: ", "chunked", "\r\n\r\n", "0\r\n\r\n", "Host: x\r\n",
           "Connection: close\r\n", "Expect: 100-continue\r\n", "Upgrade: websocket\r\n", "\r", "\n", " ", "\t", "\x0b", "\x00", ";", "0x", "+"],
)  # fmt: skip
def request_bytes(data: bytes) -> None:
    """Never an exception; the same requests however the bytes arrive; none that a strict reader
    sees otherwise.
    """
    seen, answered = _LOOP.run_until_complete(_served([data]))
    assert answered.count(b"HTTP/1.1 ") >= len(seen)
    for cut in cuts(data[:1500]):
        if len(data) <= 1500:
            assert _LOOP.run_until_complete(_served(cut))[0] == seen
    if (reference := _reference(data)) is not None and b"HTTP/1.0" not in data:
        for ours, theirs in zip(seen, reference, strict=False):
            assert (ours[0], ours[2]) == (theirs[0], theirs[2])
        assert len(seen) <= len(reference) or b"onnection" in data


class _Memory:
    """What ``sdk.wire`` gives its readers, from memory."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.arrived = bytearray()
        self._chunks = chunks

    def within(self, _timeout_s: float) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def more(self) -> bool:
        if not self._chunks:
            return False
        self.arrived += self._chunks.pop(0)
        return True

    def receive(self, most: int) -> bytes:
        return self.take(most) if self.arrived or _Memory.more(self) else b""

    def take(self, count: int) -> bytes:
        taken = bytes(self.arrived[:count])
        del self.arrived[:count]
        return taken


class _Wire(_Memory):
    """The same of ``aio.wire``."""

    async def more(self) -> bool:  # type: ignore[override]
        return super().more()

    async def receive(self, most: int) -> bytes:  # type: ignore[override]
        return super().receive(most)


def _read_blocking(data: bytes, method: str) -> tuple[int, bytes, bool] | None:
    answer = http1.Response(_Memory([data] if data else []), timeout_s=60)  # type: ignore[arg-type]
    body = b""
    try:
        answer.begin(method)
        while chunk := answer.read_some():
            body += chunk
    except (OSError, NotHttp):
        return None
    return answer.status, body, answer.reusable


async def _read(chunks: list[bytes], method: str) -> tuple[int, bytes, bool] | None:
    answer = Response(_Wire([one for one in chunks if one]), timeout_s=60)  # type: ignore[arg-type]
    body = b""
    try:
        await answer.begin(method)
        while chunk := await answer.read_some():
            body += chunk
    except (OSError, NotHttp):
        return None
    return answer.status, body, answer.reusable


class _Socket:
    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def makefile(self, _mode: str) -> io.BytesIO:
        return self._file


@target(
    "net.client.answer",
    "aio.http1",
    "sdk.http1",
    seeds=[b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
           b"HTTP/1.0 200\r\n\r\nabc", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
           b"HTTP/1.1 200 OK\nContent-Length: 1\n\na", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 60000 + b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\nab"],
    words=["HTTP/1.1 ", "200", "304", "101", "Content-Length: ", "Transfer-Encoding: "
                                                                 "chunked", "\r\n", "\r\n\r\n", "0\r\n", "Connection: close", ";", "-1"],
)  # fmt: skip
def answer_bytes(data: bytes) -> None:
    """One kind of error; the same answer however it arrives; and the one that the standard
    library reads.
    """
    for method in ("GET", "HEAD"):
        found = _LOOP.run_until_complete(_read([data], method))
        assert _read_blocking(data, method) == found
        for cut in cuts(data[:1500]):
            if len(data) <= 1500:
                assert (_LOOP.run_until_complete(_read(cut, method)) or (0, b""))[:2] == (
                    found or (0, b"")
                )[:2]
        if found is None or not found[2]:
            continue
        other = http.client.HTTPResponse(_Socket(data), method=method)  # type: ignore[arg-type]
        with contextlib.suppress(http.client.HTTPException, ValueError, OSError):
            other.begin()
            if other.chunked != ("chunked" in other.headers.get("transfer-encoding", "")):
                continue  # it does not trim what stands behind the word
            if other.status < 200:
                # of what only precedes an answer it knows 100 alone: RFC 9110, section 15.2
                continue
            assert (other.status, other.read()) == found[:2]
