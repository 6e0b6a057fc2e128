"""How the gateway connects to replicas, by the kind of their address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from cloud_ml.domain.addresses import Address, JobSocket, TcpAddress
from cloud_ml.errors import Unavailable
from cloud_ml.gateway import opener
from cloud_ml.job_sockets import JobSockets

_CONNECT_S = 5.0
"""A host that drops packets would hold callers for minutes."""


class Dialer:
    """Connects to addresses. Belongs to one event loop.

    Args:
        loop: The loop.
        job_sockets: See ``GatewayConfig``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, job_sockets: str) -> None:
        self._loop = loop
        self._sockets = JobSockets(Path(job_sockets)) if job_sockets else None

    async def connect(
        self, address: Address, make: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        """The protocol that ``make`` returned, connected.

        Raises:
            Unavailable: Nobody answers there.
            OSError: The same, of TCP.
        """
        if isinstance(address, TcpAddress):
            return await self._connect_tcp(address, make)
        return await self._connect_socket(address, make)

    async def _connect_tcp(
        self, address: TcpAddress, make: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        async with asyncio.timeout(_CONNECT_S):
            _, made = await self._loop.create_connection(make, address.host, address.port)
        return made

    async def _connect_socket(
        self, address: JobSocket, make: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        if self._sockets is None:
            raise Unavailable("this gateway reaches replicas over TCP only")
        connected = opener.connect(address, self._sockets)
        try:
            _, made = await self._loop.create_unix_connection(make, sock=connected)
        # Also when the caller is cancelled: nobody else closes the socket then.
        except BaseException:
            connected.close()
            raise
        return made
