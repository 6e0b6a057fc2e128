"""The protocol holds its bounds, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from support.listening import listening
from support.platform import Served

pytestmark = pytest.mark.anyio
HOST = b"host: x\r\n"


_ESTABLISHED = 1


async def talk(port: int, *pieces: bytes) -> tuple[int, dict[str, Any]]:
    """Send, and read until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]), json.loads(body)) if head else (0, {})


@pytest.mark.parametrize(
    ("request_bytes", "status", "code"),
    [
        (
            b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(21)) + b"\r\n",
            431,
            "too_large",
        ),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 5000 + b"\r\n\r\n", 431, "too_large"),
        (b"GET /" + b"y" * 5000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 414, "too_large"),
        (b"nonsense\r\n\r\n", 400, "invalid"),
        (b"GET /nowhere HTTP/1.1\r\nconnection: close\r\n" + HOST + b"\r\n", 404, "not_found"),
    ],
)
async def test_a_head_is_bounded(
    served: Served, request_bytes: bytes, status: int, code: str
) -> None:
    async with listening(served) as port:
        answer, document = await talk(port, request_bytes)
        assert (answer, document["code"], document["error"]) == (status, code, True)


@pytest.mark.parametrize("version", [b"1.1", b"1.2", b"1.9"])
async def test_later_minor_versions_are_answered_as_1_1(served: Served, version: bytes) -> None:
    """RFC 9110, section 2.5; the connection goes on."""
    again = b"GET /nothing HTTP/%b\r\n%b\r\n" % (version, HOST)
    last = b"GET /nothing HTTP/%b\r\nconnection: close\r\n%b\r\n" % (version, HOST)
    async with listening(served) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(again + last)
        answers = await asyncio.wait_for(reader.read(), 60)
        writer.close()
    assert answers.count(b"HTTP/1.1 404 Not Found") == 2
    assert answers.count(b"connection: close") == 1


@pytest.mark.parametrize("version", [b"0.9", b"2.0", b"3.0"])
async def test_other_major_versions_are_refused(served: Served, version: bytes) -> None:
    async with listening(served) as port:
        status, document = await talk(port, b"GET /nothing HTTP/%b\r\n%b\r\n" % (version, HOST))
    assert (status, document["code"]) == (505, "invalid")
    assert f"HTTP/{version.decode()}; HTTP/1.0 and HTTP/1.1 are read" in document["message"]


@pytest.mark.parametrize(
    ("request_bytes", "says"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", "no Host"),
        (b"GET http://x/healthz HTTP/1.1\r\n\r\n", "no Host"),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + b"Host: y\r\n\r\n", "more than one Host"),
        (b"GET /healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n", "more than one Host"),
        (b"GET http://x/healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n", "more than one Host"),
        (b"GET /healthz HTTP/1.0\r\n" + HOST + HOST + b"\r\n", "more than one Host"),
        (b"GET /healthz HTTP/1.1\r\nhost: a b\r\n\r\n", "Host is 'a b'"),
        (b"GET /healthz HTTP/1.1\r\nhost: a/b\r\n\r\n", "Host is 'a/b'"),
        (b"GET /healthz HTTP/1.1\r\nhost: user@a\r\n\r\n", "Host is 'user@a'"),
        (b"GET /healthz HTTP/1.1\r\nhost: a:80:80\r\n\r\n", "Host is 'a:80:80'"),
    ],
)
async def test_a_request_has_one_host(served: Served, request_bytes: bytes, says: str) -> None:
    """RFC 9112, section 3.2."""
    async with listening(served) as port:
        status, document = await talk(port, request_bytes)
    assert (status, document["code"]) == (400, "invalid")
    assert says in document["message"]
    assert 'refused_total{why="bad head"} 1' in served.platform.metrics.text()


@pytest.mark.parametrize("host", [b"x", b"x:8080", b"[::1]:80", b"127.0.0.1", b"", b"a_b.example:"])
async def test_a_host_that_is_one(served: Served, host: bytes) -> None:
    async with listening(served) as port:
        closing = b"connection: close\r\n\r\n"
        assert (await talk(port, b"GET /healthz HTTP/1.1\r\nhost: " + host + b"\r\n" + closing))[
            0
        ] == 200
        assert (await talk(port, b"GET /healthz HTTP/1.0\r\n\r\n"))[0] == 200


@pytest.mark.parametrize(
    "bad",
    [b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 50_000, b"no request\r\n\r\n"],
)
async def test_a_refusal_is_not_written_into_an_answer(served: Served, bad: bytes) -> None:
    """A refusal of the second request came in the middle of the answer to the first one."""
    target, content = "/api/v1/storage/cloudml/large", bytes(range(256)) * 100_000
    assert (await served.member.call("PUT", target, body=content)).status == 201
    lines = "".join(
        f"{name}: {value}\r\n" for name, value in served.member.sign("GET", target).items()
    )
    async with listening(served) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        writer.write(bad)
        assert await asyncio.wait_for(reader.read(), 60) == content
        writer.close()


async def test_answers_are_dated_by_the_second(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one connection, also after the second has changed; nobody looks at the clock meanwhile."""
    now = 1_000_000_000.9
    monkeypatch.setattr("cloud_ml.api.http1.time", SimpleNamespace(time=lambda: now))
    async with listening(served) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for second in (b"Sun, 09 Sep 2001 01:46:40 GMT", b"Sun, 09 Sep 2001 01:46:42 GMT"):
            writer.write(b"GET /nowhere HTTP/1.1\r\n" + HOST + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"date: " + second + b"\r\n" in head
            length = next(
                line for line in head.split(b"\r\n") if line.startswith(b"content-length: ")
            )
            await reader.readexactly(int(length.split()[1]))
            now = 1_000_000_002.1
        writer.close()


async def test_a_head_without_an_end_is_cut(served: Served) -> None:
    async with listening(served) as port:
        pieces = [b"GET / HTTP/1.1\r\nx: ", *[b"y" * 10_000] * 60]
        with contextlib.suppress(ConnectionError):  # it may be cut before it has said everything
            assert (await talk(port, *pieces))[0] == 431
        assert 'refused_total{why="large head"} 1' in served.platform.metrics.text()


@pytest.mark.parametrize("begun", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nhost: "])
async def test_a_slow_head_is_cut(served: Served, begun: bytes) -> None:
    async with listening(served, header_timeout_s=0.05) as port:
        answer, document = await talk(port, begun)
        assert (answer, document["code"]) == (408, "timeout")


async def test_a_body_that_stops_is_cut(served: Served) -> None:
    target = "/api/v1/storage/cloudml/x"
    headers = served.member.sign("PUT", target, [b""]) | {"Content-Length": "100", "Host": "x"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    async with listening(served, body_timeout_s=0.05) as port:
        with contextlib.suppress(ConnectionResetError):  # it is cut with bytes that nobody read
            answer, _ = await talk(port, f"PUT {target} HTTP/1.1\r\n{lines}\r\nabc".encode())
            assert answer == 0
    assert 'refused_total{why="slow body"} 1' in served.platform.metrics.text()


async def test_a_reader_that_does_not_read_is_cut(served: Served) -> None:
    target = "/api/v1/storage/cloudml/large"
    assert (await served.member.call("PUT", target, body=b"x" * 30_000_000)).status == 201
    lines = "".join(
        f"{name}: {value}\r\n" for name, value in served.member.sign("GET", target).items()
    )
    async with listening(served, write_timeout_s=0.1) as port:
        with socket.create_connection(("127.0.0.1", port)) as idle:
            idle.sendall(f"GET {target} HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode())
            async with asyncio.timeout(60):
                while "slow reader" not in served.platform.metrics.text():
                    await asyncio.sleep(0.01)
                # Reset, not only closed: the kernel would keep for minutes what nobody reads.
                while idle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED:
                    await asyncio.sleep(0.01)


async def test_a_connection_too_many_is_turned_away(served: Served) -> None:
    async with listening(served, connections=1) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\n")  # it has begun a request
        await writer.drain()
        answer, document = await talk(port, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (answer, document["code"]) == (503, "unavailable")
        writer.close()


@pytest.mark.parametrize("with_request", [False, True])
async def test_the_connection_that_is_idle_longest_gives_way_to_a_new_one(
    served: Served, with_request: bool
) -> None:
    """One organisation's idle connections were all that the server takes."""
    request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    async with listening(served, connections=3) as port, contextlib.AsyncExitStack() as stack:

        async def connect(first: bytes) -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(first)
            return reader

        idle = [await connect(request if with_request else b"") for _ in range(2)]
        for reader in idle if with_request else []:
            await reader.readuntil(b"}")
        busy = await connect(request[:10])
        for reader in idle:
            fresh = await connect(request)
            assert b" 200 " in await fresh.readline()
            assert await asyncio.wait_for(reader.read(), 60) == b""
        assert busy.at_eof() is False
        assert (
            'cloudml_http_connections_refused_total{why="idle"} 2' in served.platform.metrics.text()
        )


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"content-length: 5\r\ncontent-length: 0\r\n",
        b"content-length: +5\r\n",
        b"content-length: -5\r\n",
        b"content-length: 5, 5\r\n",
        b"transfer-encoding: chunked, identity\r\n",
        b"transfer-encoding : chunked\r\n",
        b"x: a\r\n folded: b\r\ncontent-length: 0\r\n",
        b"x: a\x00b\r\n",
        b"x: a\rcontent-length: 5\r\n",
    ],
)
async def test_nothing_is_smuggled(served: Served, framing: bytes) -> None:
    """Where two readers could disagree about the end of a request, there is no second one."""
    head = b"POST /healthz HTTP/1.1\r\n" + HOST + framing + b"\r\n"
    async with listening(served) as port:
        status, document = await talk(
            port, head + b"0\r\n\r\nGET /api/v1/whoami HTTP/1.1\r\n" + HOST + b"\r\n"
        )
    assert (status, document["message"]) == (400, "this is no HTTP/1.1 request")
