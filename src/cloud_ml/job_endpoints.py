"""Serves what jobs may call on the sockets that jobs reach, beside the server's own listener."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from cloud_ml.api.http1 import Bounds, Patient, make_protocol
from cloud_ml.api.job_endpoint import JobEndpoint
from cloud_ml.engines.abilities import JobListener

_Key = tuple[int | None, str]
_ACCEPTED_AT_ONCE = 2
"""Of each listener, in one turn of the event loop: there may be thousands, each with a full queue."""
_BACKLOG = 64


@dataclass(frozen=True)
class _OrganisationState:
    """What the connections of an organisation have in common."""

    protocol: type[Patient]
    state: ServerState = field(default_factory=ServerState)


class JobEndpoints:
    """One listener for each network of jobs. Those of an organisation share their connections.

    Args:
        app: The whole application.
        bounds: What the connections of an organisation may cost.
        refused: Is told why a connection was cut.
    """

    def __init__(self, app: ASGIApp, bounds: Bounds, refused: Callable[[str], None]) -> None:
        self._app = app
        self._bounds = bounds
        self._refused = refused
        self._shared: dict[int | None, _OrganisationState] = {}
        self._open: dict[_Key, tuple[asyncio.Server, uvicorn.Config]] = {}

    async def run(self, listeners: AsyncIterator[JobListener]) -> None:
        """Serve on each listener that comes, until it goes.

        Raises:
            OSError: One cannot be served, or no more are to be had. None is served any more.
        """
        try:
            async for one in listeners:
                self._close((one.tenant, one.network))
                if one.socket is not None:
                    await self._serve(one, one.socket)
        finally:
            for key in list(self._open):
                self._close(key)

    async def _serve(self, network: JobListener, listener: socket.socket) -> None:
        shared = self._shared.get(network.tenant)
        if shared is None:
            protocol = make_protocol(self._bounds, self._refused)
            shared = self._shared[network.tenant] = _OrganisationState(protocol)
        endpoint = JobEndpoint(
            self._app, network.tenant, sandboxed=network.sandboxed, job_uid=network.job_uid
        )
        config = uvicorn.Config(
            endpoint,
            http=shared.protocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        config.load()
        make = functools.partial(
            shared.protocol, config=config, server_state=shared.state, app_state={}
        )
        try:
            server = await asyncio.get_running_loop().create_server(
                make, sock=listener, backlog=_ACCEPTED_AT_ONCE
            )
            listener.listen(_BACKLOG)  # asyncio has made the queue as short
        except BaseException:
            listener.close()
            raise
        self._open[network.tenant, network.network] = (server, config)

    def _close(self, key: _Key) -> None:
        """Take no more connections. Answers that are under way are given."""
        found = self._open.pop(key, None)
        if found is None:
            return
        server, config = found
        server.close()
        tenant, _ = key
        for connection in list(self._shared[tenant].state.connections):
            if connection.config is config:
                connection.shutdown()
        if not any(other == tenant for other, _ in self._open):
            del self._shared[tenant]
