"""An orderly end waits for the answer of who had connected and said nothing yet."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cloud_ml.net.listening import Alive, ProtocolSniffer


class Client(asyncio.Protocol):
    """Connects, and keeps what comes."""

    def __init__(self) -> None:
        self.over = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set_result(exc)


class Slow(asyncio.Protocol):
    """A connection whose answer takes until it is told."""

    def __init__(self) -> None:
        self.request = asyncio.get_running_loop().create_future()
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.request.set_result(data)

    def leave(self) -> None:
        """It leaves with its answer."""


@pytest.mark.anyio
async def test_who_speaks_first_during_the_end_is_waited_for() -> None:
    loop, alive, slow = asyncio.get_running_loop(), Alive(), Slow()
    server = await loop.create_server(
        lambda: ProtocolSniffer(lambda: slow, lambda: slow, alive), "127.0.0.1"
    )
    transport, client = await loop.create_connection(Client, *server.sockets[0].getsockname())
    while not len(alive):
        await asyncio.sleep(0)
    ending = asyncio.create_task(alive.drain(30))
    await asyncio.sleep(0)
    transport.write(b"GET / HTTP/1.1\r\n\r\n")
    await slow.request
    for _ in range(10):
        await asyncio.sleep(0)
    assert not ending.done(), "its answer is under way"
    assert slow.transport is not None
    slow.transport.close()
    await ending
    await client.over
    server.close()


def certificate(folder: Path) -> Path:
    """A file with a key and its certificate for ``localhost``."""
    key, signed, both = (folder / name for name in ("key.pem", "certificate.pem", "both.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    names = ["-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext"]
    options = ["subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(signed)]
    subprocess.run([*command, *names, *options], check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + signed.read_bytes())
    return both


async def at_the_end(
    file: Path, during: Callable[[socket.socket], Awaitable[None]], alive: Alive, slow: Slow
) -> None:
    """Serve over TLS, and end when a client is accepted whose handshake has not begun."""
    loop, accepted = asyncio.get_running_loop(), asyncio.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    def greet() -> ProtocolSniffer:
        accepted.set()
        return ProtocolSniffer(lambda: slow, lambda: slow, alive)

    server = await loop.create_server(greet, "127.0.0.1", ssl=context)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.setblocking(False)
        await accepted.wait()
        ending = asyncio.create_task(alive.drain(30))
        await asyncio.sleep(0)
        await during(client)
        await ending
    server.close()


@pytest.mark.anyio
@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
async def test_who_was_accepted_before_the_end_is_answered_over_tls(tmp_path: Path) -> None:
    """The old gateway closed the connections whose handshake was under way when it left."""
    file, alive, slow = certificate(tmp_path), Alive(), Slow()

    async def ask(client: socket.socket) -> None:
        trust = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
        opened = asyncio.open_connection(sock=client, ssl=trust, server_hostname="localhost")
        _, writer = await opened
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await slow.request == b"GET / HTTP/1.1\r\n\r\n"
        assert slow.transport is not None
        slow.transport.close()
        writer.close()

    await at_the_end(file, ask, alive, slow)


@pytest.mark.anyio
@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
async def test_a_handshake_that_fails_keeps_no_end_waiting(tmp_path: Path) -> None:
    file, alive, slow = certificate(tmp_path), Alive(), Slow()

    async def break_off(client: socket.socket) -> None:
        client.close()

    async with asyncio.timeout(4):
        await at_the_end(file, break_off, alive, slow)
    assert not slow.request.done()
