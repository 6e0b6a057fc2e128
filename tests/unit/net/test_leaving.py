"""An orderly end waits for the answer of who had connected and said nothing yet."""

from __future__ import annotations

import asyncio

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
        self.asked = asyncio.get_running_loop().create_future()
        self.transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.asked.set_result(data)

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
    await slow.asked
    for _ in range(10):
        await asyncio.sleep(0)
    assert not ending.done(), "its answer is under way"
    assert slow.transport is not None
    slow.transport.close()
    await ending
    await client.over
    server.close()
