"""What the gateway does with a call when replicas refuse, die or are not there: replicas are real sockets here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.services.routes import Backend, Route
from cloud_ml.domain.services.spec import SOCKET
from cloud_ml.gateway.access import Access
from cloud_ml.gateway.answers import Refusal
from cloud_ml.gateway.calls import Call
from cloud_ml.gateway.http1 import Http1Client
from cloud_ml.gateway.http2 import ClientLimits, Http2Client
from cloud_ml.gateway.replica import Replica
from cloud_ml.gateway.services import Bounds, Service
from cloud_ml.serving.turns import Turns

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


class Asked(Call):
    """A call over HTTP/1.1 whose end can be waited for."""

    def __init__(self, service: Service, *, safe: bool = True, seconds: float = 10.0) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(service, loop.time() + seconds, safe=safe)
        self.found: asyncio.Future[Any] = loop.create_future()
        self.client: Http1Client | None = None

    def waits(self) -> bool:
        return not self.found.done()

    def refuse(self, refusal: Refusal) -> None:
        self.found.set_result(refusal.http)

    def send(self, replica: Replica) -> None:
        replica.http(self)

    def over(self, client: Http2Client | Http1Client) -> None:
        assert isinstance(client, Http1Client)
        self.client = client
        client.call(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"", self)

    def cancel(self) -> None:
        if self.client is not None:
            self.client.cancel()

    def answered(self, status: int, fields: bytes, body: bytes) -> None:
        self.service.done(self)
        self.found.set_result(body.decode())


class World:
    """A service, and replicas by name that do as they are told."""

    def __init__(self, folder: Path, **bounds: Any) -> None:
        loop = asyncio.get_running_loop()
        self.folder = folder
        self.asked: dict[str, int] = {}
        self.listening: dict[str, asyncio.AbstractServer] = {}
        told = {"waiting": 10, "waiting_s": 0.3, "in_flight": 20, "attempts": 3, "timeout_s": 10.0} | bounds
        self.service = Service(
            Route(1, "mine", "m/v1"), Access(60.0), bounds=Bounds(**told), limits=ClientLimits(), turns=Turns(loop),
            loop=loop,
        )  # fmt: skip

    def route(self, *names: str, wanted: bool = True) -> None:
        backends = tuple(Backend(name, str(self.folder / name)) for name in names)
        self.service.change(Route(1, "mine", "m/v1", wanted=wanted, backends=backends))

    async def replica(self, name: str, does: Callable[[asyncio.StreamWriter], Any]) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await reader.readuntil(b"\r\n\r\n"):
                    self.asked[name] = self.asked.get(name, 0) + 1
                    does(writer)
            writer.close()

        (self.folder / name).mkdir()
        self.listening[name] = await asyncio.start_unix_server(serve, self.folder / name / SOCKET)

    def call(self, **how: Any) -> Asked:
        made = Asked(self.service, **how)
        self.service.take(made)
        return made


def answers(word: bytes) -> Callable[[asyncio.StreamWriter], None]:
    return lambda writer: writer.write(OK + word)


def dies(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@contextlib.asynccontextmanager
async def world(folder: Path, **bounds: Any) -> AsyncIterator[World]:
    made = World(folder, **bounds)
    async with asyncio.timeout(20):
        yield made
    made.service.close()
    for each in made.listening.values():
        each.close()
    await asyncio.sleep(0.01)  # both ends of each connection hear of it


async def test_the_one_with_the_least_to_do(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for name in ("a", "b"):
            await here.replica(name, answers(b"ok"))
        here.route("a", "b")
        calls = [here.call() for _ in range(10)]
        assert [await each.found for each in calls] == ["ok"] * 10
        assert here.asked == {"a": 5, "b": 5}
        assert here.service.idle


async def test_another_one_where_it_may_be_repeated(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.replica("bad", dies)
        await here.replica("good", answers(b"ok"))
        here.route("bad", "good")
        assert [await here.call().found for _ in range(4)] == ["ok"] * 4
        assert here.asked["bad"], "it was tried"
        here.route("bad")
        assert await here.call(safe=False).found == 503, "it may have begun, and may not be repeated"
        assert await here.call().found == 503, "each try failed"


async def test_where_nobody_listens_it_waits_for_who_comes(tmp_path: Path) -> None:
    async with world(tmp_path, waiting_s=15.0) as here:
        here.route("late")
        early = here.call(safe=False)
        await asyncio.sleep(0.1)
        assert not early.found.done()
        await here.replica("late", answers(b"ok"))
        assert await early.found == "ok", "nobody had begun, so it is sent again whatever it is"


async def test_nobody_comes(tmp_path: Path) -> None:
    async with world(tmp_path, waiting=2) as here:
        here.route()
        calls = [here.call() for _ in range(3)]
        assert calls[2].found.result() == 429, "no more than so many wait"
        assert [await each.found for each in calls[:2]] == [503, 503]
        here.route(wanted=False)
        assert here.call().found.result() == 503


async def test_too_many_under_way_and_who_gives_up(tmp_path: Path) -> None:
    async with world(tmp_path, in_flight=2) as here:
        await here.replica("slow", lambda _: None)
        here.route("slow")
        calls = [here.call() for _ in range(3)]
        assert calls[2].found.result() == 429
        while here.asked != {"slow": 2}:
            await asyncio.sleep(0.001)
        calls[0].found.set_result("gave up")
        late = calls[1]
        late.deadline = 0.0
        here.service.tick(asyncio.get_running_loop().time())
        assert late.found.result() == 504
        assert here.service.idle
        assert here.service.figures().requests == 3


async def test_one_that_left_the_route_gets_nothing_new_and_ends_what_it_has(tmp_path: Path) -> None:
    held: list[asyncio.StreamWriter] = []
    async with world(tmp_path) as here:
        await here.replica("old", held.append)
        await here.replica("new", answers(b"on"))
        here.route("old")
        first = here.call()
        while not held:
            await asyncio.sleep(0.001)
        here.route("new")
        assert [await here.call().found for _ in range(3)] == ["on"] * 3
        assert here.asked["old"] == 1
        held[0].write(OK + b"ok")
        assert await first.found == "ok"
