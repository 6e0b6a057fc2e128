"""Serves what jobs may call on the sockets that jobs reach, beside the server's own listener."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Callable

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from cloud_ml.api.http1 import Bounds, make_protocol
from cloud_ml.api.job_endpoint import JobEndpoint
from cloud_ml.engines.abilities import JobListener


class JobEndpoints:
    """One listener for each network of jobs, each with connections of its own.

    Args:
        app: The whole application.
        bounds: What the connections of one network may cost.
        refused: Is told why a connection was cut.
    """

    def __init__(self, app: ASGIApp, bounds: Bounds, refused: Callable[[str], None]) -> None:
        self._app = app
        self._bounds = bounds
        self._refused = refused
        self._open: dict[int | None, tuple[asyncio.Server, ServerState]] = {}

    async def run(self, listeners: AsyncIterator[JobListener]) -> None:
        """Serve on each listener that comes, until it goes."""
        try:
            async for one in listeners:
                self._close(one.tenant)
                if one.socket is not None:
                    await self._serve(one, one.socket)
        finally:
            for tenant in list(self._open):
                self._close(tenant)

    async def _serve(self, network: JobListener, listener: socket.socket) -> None:
        spoken = make_protocol(self._bounds, self._refused)
        config = uvicorn.Config(
            JobEndpoint(self._app, network.tenant, sandboxed=network.sandboxed),
            http=spoken,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        config.load()
        state = ServerState()
        protocol = functools.partial(spoken, config=config, server_state=state, app_state={})
        server = await asyncio.get_running_loop().create_server(protocol, sock=listener)
        self._open[network.tenant] = (server, state)

    def _close(self, tenant: int | None) -> None:
        """Take no more connections. Answers that are under way are given."""
        found = self._open.pop(tenant, None)
        if found is None:
            return
        server, state = found
        server.close()
        for connection in list(state.connections):
            connection.shutdown()
