"""Replicas are reached by the kind of their address, and at the address that they have now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloud_ml.domain.addresses import JobSocket, TcpAddress
from cloud_ml.domain.services.routes import SOCKET, Backend, Route
from cloud_ml.errors import Unavailable
from cloud_ml.gateway.dialer import Dialer
from support.gateway_world import OK, World, answers, world

pytestmark = pytest.mark.anyio


class TcpReplica:
    """A replica on a port of this machine that answers each call with a word."""

    def __init__(self, word: bytes) -> None:
        self._word = word
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> TcpAddress:
        self._server = server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        return TcpAddress(host, port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(OK + self._word)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as found:
        yield found


@pytest.fixture
async def addresses() -> AsyncIterator[list[TcpAddress]]:
    """Of a replica that answers ``t0``, and of one that answers ``t1``."""
    replicas = [TcpReplica(word) for word in (b"t0", b"t1")]
    yield [await each.start() for each in replicas]
    for each in replicas:
        each.close()


def route(*backends: Backend) -> Route:
    return Route(1, "mine", "m/v1", backends=backends)


async def test_a_replica_on_a_port_is_called(made: World, addresses: list[TcpAddress]) -> None:
    made.service.change(route(Backend("a", addresses[0])))
    assert await made.call().found == "t0"


async def test_a_replica_is_called_where_it_is_now(
    made: World, addresses: list[TcpAddress]
) -> None:
    """No kept connection leads calls to where it was before."""
    await made.replica("a", answers(b"so"))
    for address, word in (
        (addresses[0], "t0"),
        (addresses[1], "t1"),
        (JobSocket("a", SOCKET), "so"),
        (addresses[0], "t0"),
    ):
        made.service.change(route(Backend("a", address)))
        assert await made.call().found == word


async def test_a_gateway_without_the_sockets_of_jobs_opens_none(made: World) -> None:
    await made.replica("a", answers(b"so"))
    dialer = Dialer(asyncio.get_running_loop(), "")
    with pytest.raises(Unavailable, match="TCP only"):
        await dialer.connect(JobSocket("a", SOCKET), asyncio.Protocol)
