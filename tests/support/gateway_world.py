"""A service in the gateway, its calls, and replicas that are real sockets and do as they are
told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from cloud_ml.domain.services.routes import SOCKET, Route
from cloud_ml.gateway.access import Access
from cloud_ml.gateway.answers import Refusal
from cloud_ml.gateway.call import Bounds, Call
from cloud_ml.gateway.client_limits import ClientLimits
from cloud_ml.gateway.dialer import Dialer
from cloud_ml.gateway.http1 import Http1Client
from cloud_ml.gateway.http2 import Http2Client
from cloud_ml.gateway.model_list import ModelList
from cloud_ml.gateway.replica import Replica
from cloud_ml.gateway.services import Service
from cloud_ml.net.loop_iteration import LoopIteration
from support.replica_sockets import backend, replica_folder

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


class AwaitedCall(Call):
    """A call over HTTP/1.1 whose end can be waited for."""

    def __init__(
        self, service: Service, *, safe: bool = True, seconds: float = 10.0, release: str = ""
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(service, loop.time() + seconds, safe=safe, release_name=release)
        self.found: asyncio.Future[Any] = loop.create_future()
        self.client: Http1Client | None = None
        self.fields = b""

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
        self.service.done(self, well=status == 200)
        self.fields = fields
        self.found.set_result(body.decode())


class World:
    """A service, and replicas by name that do as they are told."""

    def __init__(self, folder: Path, **bounds: Any) -> None:
        loop = asyncio.get_running_loop()
        self.folder = folder
        self.calls: dict[str, int] = {}
        self.listening: dict[str, asyncio.AbstractServer] = {}
        all_bounds = {
            "waiting": 10,
            "waiting_s": 0.3,
            "in_flight": 20,
            "attempts": 3,
            "timeout_s": 10.0,
        } | bounds
        self.limits = ClientLimits()
        access = Access(60.0)
        self.service = Service(
            Route(1, "mine", "m/v1"),
            access,
            ModelList(list, access, "http://gateway"),
            bounds=Bounds(**all_bounds),
            limits=self.limits,
            iteration=LoopIteration(loop),
            loop=loop,
            dialer=Dialer(loop, str(folder)),
        )

    def route(self, *names: str, is_served: bool = True, **more: Any) -> None:
        """A name that ends in a digit is that of a replica of this release."""
        backends = tuple(
            backend(name, release=int(name[-1]) if name[-1].isdigit() else 0) for name in names
        )
        self.service.change(Route(1, "mine", "m/v1", wanted=is_served, backends=backends, **more))

    async def replica(self, name: str, does: Callable[[asyncio.StreamWriter], Any]) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await reader.readuntil(b"\r\n\r\n"):
                    self.calls[name] = self.calls.get(name, 0) + 1
                    does(writer)
            writer.close()

        path = replica_folder(self.folder, name) / SOCKET
        self.listening[name] = await asyncio.start_unix_server(serve, path)

    def call(self, **how: Any) -> AwaitedCall:
        made = AwaitedCall(self.service, **how)
        self.service.take(made)
        return made


def answers(word: bytes) -> Callable[[asyncio.StreamWriter], None]:
    return lambda writer: writer.write(OK + word)


def dies(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@contextlib.asynccontextmanager
async def world(folder: Path, **bounds: Any) -> AsyncIterator[World]:
    made = World(folder, **bounds)
    async with asyncio.timeout(60):
        yield made
    made.service.close()
    for each in made.listening.values():
        each.close()
    await asyncio.sleep(0.01)  # both ends of each connection hear of it
