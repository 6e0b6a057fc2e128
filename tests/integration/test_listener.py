"""The server's socket, as asyncio serves it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from cloud_ml.server import _listen
from cloud_ml.settings import ServerSettings
from support.server import RealServer


def test_answers_do_not_wait_for_the_acknowledgement_of_their_heads() -> None:
    async def accepted_socket() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = _listen(ServerSettings(port=0))
        async with await asyncio.start_server(look, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            no_delay = await asyncio.wait_for(found, 60)
            writer.close()
            await writer.wait_closed()
        return no_delay

    assert asyncio.run(accepted_socket()) == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n0\r\n\r\n", b"200 OK"),
        (b"0\r\n\r\n", b"400 Bad Request"),
    ],
)
def test_what_follows_a_request_does_not_spoil_its_answer(
    server: RealServer, sent: bytes, status: bytes
) -> None:
    """The original client ends a GET with an empty chunk that nobody announced."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"\r\n\r\n") == 1, "one answer"
