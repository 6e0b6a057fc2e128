"""An application on a port, as the server has it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from cloud_ml.api.http1 import Bounds, make_protocol
from support.platform import Served


@contextlib.asynccontextmanager
async def listening(served: Served, **changes: Any) -> AsyncIterator[int]:
    """The app on a port."""
    bounds = Bounds(
        **{
            "connections": 50,
            "header_bytes": 4096,
            "header_count": 20,
            "header_timeout_s": 30,
            "body_timeout_s": 30,
            "write_timeout_s": 30,
        }
        | changes
    )
    config = uvicorn.Config(
        served.client.app,
        http=make_protocol(bounds, served.platform.metrics.refused_connections.add),
        lifespan="off",
        log_config=None,
        access_log=False,
        date_header=False,
        timeout_keep_alive=1,
    )
    config.load()
    state, protocol = ServerState(), cast("Any", config.http_protocol_class)
    # The app as uvicorn's server has it, without the rounds of 0.1 s in which that server starts
    # and ends.
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.shutdown()
        running = list(state.tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
