"""Listeners of jobs: those of an organisation share their connections, and one goes without the
others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from starlette.types import Receive, Scope, Send

from cloud_ml.api.http1 import Bounds
from cloud_ml.engines.abilities import JobListener
from cloud_ml.job_endpoints import JobEndpoints

pytestmark = pytest.mark.anyio

CONNECTIONS = 4


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    del receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


class Scene:
    """Some listeners of two organisations."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[JobListener] = asyncio.Queue()
        self.ports: dict[str, int] = {}
        self.refused: list[str] = []

    def add(self, tenant: int, network: str) -> None:
        made = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.ports[network] = made.getsockname()[1]
        self.news.put_nowait(JobListener(tenant, made, network=network, job_uid=network))

    def remove(self, tenant: int, network: str) -> None:
        self.news.put_nowait(JobListener(tenant, None, network=network, job_uid=network))

    async def listeners(self) -> AsyncGenerator[JobListener]:
        while True:
            yield await self.news.get()

    async def connect(self, network: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.ports[network])

    async def ask(self, network: str) -> int:
        reader, writer = await self.connect(network)
        return await ask(reader, writer)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    writer.write(b"GET /mlflow/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    bounds = Bounds(CONNECTIONS, 8192, 100, 60, 60, 60)
    endpoints = JobEndpoints(app, bounds, scene.refused.append)
    task = asyncio.create_task(endpoints.run(scene.listeners()))
    yield scene
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_jobs_of_an_organisation_share_its_connections(scene: Scene) -> None:
    for tenant, network in ((1, "a"), (1, "b"), (2, "c")):
        scene.add(tenant, network)
    assert [await scene.ask(network) for network in "abc"] == [200] * 3
    held = [await scene.connect("a") for _ in range(CONNECTIONS)]
    # A connection without a request gives way to one that comes, also to that of another job.
    assert await scene.ask("b") == 200
    ended = [asyncio.create_task(reader.read()) for reader, _ in held]
    await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert sum(task.done() for task in ended) == 1
    assert await scene.ask("c") == 200
    assert sum(task.done() for task in ended) == 1
    for task in ended:
        task.cancel()
    for _, writer in held:
        writer.close()


async def test_one_goes_without_the_others(scene: Scene) -> None:
    for network in "ab":
        scene.add(1, network)
    gone, kept = await scene.connect("a"), await scene.connect("b")
    assert await scene.ask("a") == await scene.ask("b") == 200
    scene.remove(1, "a")
    assert await asyncio.wait_for(gone[0].read(), 10) == b""
    with pytest.raises(ConnectionRefusedError):
        await scene.connect("a")
    assert await ask(*kept) == 200
    gone[1].close()
    scene.remove(1, "b")
    scene.add(1, "b")
    assert await scene.ask("b") == 200


async def test_a_full_queue_is_taken_a_few_at_a_time(scene: Scene) -> None:
    """All that wait at a thousand listeners would hold up everybody for seconds."""
    waiting = 60
    scene.add(1, "a")
    with contextlib.ExitStack() as stack:
        for _ in range(waiting):  # the kernel connects them, nobody has accepted yet
            made = stack.enter_context(socket.create_connection(("127.0.0.1", scene.ports["a"])))
            made.setblocking(False)
        turns = list[int]()
        async with asyncio.timeout(10):
            while len(scene.refused) < waiting - CONNECTIONS:
                before = len(scene.refused)
                await asyncio.sleep(0)
                turns.append(len(scene.refused) - before)
    assert max(turns) <= 4
