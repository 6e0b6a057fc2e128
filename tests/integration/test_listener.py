"""The server's socket, as asyncio serves it."""

from __future__ import annotations

import asyncio
import socket

from cloud_ml.server import _listen
from cloud_ml.settings import ServerSettings


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
            no_delay = await asyncio.wait_for(found, 10)
            writer.close()
            await writer.wait_closed()
        return no_delay

    assert asyncio.run(accepted_socket()) == 1
