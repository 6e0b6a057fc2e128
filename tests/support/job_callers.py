"""Answers jobs that call the server of their engine, in place of a server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from cloud_ml.engines.abilities import JobListener
from cloud_ml.engines.local.engine import LocalEngine

_LIMIT_S = 60.0


class JobServer:
    """A server as far as jobs see it: it answers each with the uid of the job that its socket is
    of, and what was said.
    """

    def __init__(self, engine: LocalEngine) -> None:
        self.there: dict[str, JobListener] = {}
        self.ever: list[JobListener] = []
        self._engine = engine
        self._servers: dict[str, asyncio.Server] = {}

    async def run(self) -> None:
        async with contextlib.aclosing(self._engine.job_listeners()) as found:
            async for one in found:
                if one.socket is None:
                    del self.there[one.network]
                    self._servers.pop(one.network).close()
                    continue
                self.ever.append(one)
                self.there[one.network] = one
                self._servers[one.network] = await self._serve(one, one.socket)

    async def _serve(self, one: JobListener, listener: socket.socket) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = (await reader.readline()).decode().strip()
            writer.write(f"{one.tenant} {one.job_uid} {line}\n".encode())
            writer.close()

        return await asyncio.start_server(answer, sock=listener)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(_LIMIT_S):
            while len(self.there) != count:
                await asyncio.sleep(0.01)

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


@contextlib.asynccontextmanager
async def served(engine: LocalEngine) -> AsyncIterator[JobServer]:
    serving = JobServer(engine)
    task = asyncio.create_task(serving.run())
    try:
        yield serving
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        serving.close()
