"""A gateway on a real port, in front of a model server at a socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloud_ml.domain.services.routes import SOCKET, Route
from cloud_ml.gateway.config import GatewayConfig, Instruction
from cloud_ml.gateway.gateway import Gateway
from support.replica_sockets import backend, replica_folder

UID = "one"


def replica_socket(folder: Path) -> Path:
    """The socket of the replica in a folder."""
    return replica_folder(folder, UID) / SOCKET


@contextlib.contextmanager
def replica(folder: Path, *flags: str) -> Iterator[None]:
    """A model server at ``replica_socket``, as the gateway looks for it."""
    command = [
        sys.executable,
        "-m",
        "cloud_ml.serving",
        "--unix_socket",
        str(replica_socket(folder)),
        *flags,
    ]
    log = folder / "log"
    with log.open("wb") as written, subprocess.Popen(command, stderr=written) as process:
        try:
            until = time.monotonic() + 60
            while b"listening on" not in log.read_bytes():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


class gateway_before:  # noqa: N801 - reads like a function
    """A gateway in a thread of its own; its port. It asks for no token unless it is told to."""

    def __init__(self, folder: Path, *, tokens: bool = False, **config: Any) -> None:
        self._open_to_all = not tokens
        self._config = GatewayConfig(
            str(folder), "test", "127.0.0.1", job_sockets=str(folder), **config
        )
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._gateway: Gateway | None = None
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> int:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(60)
        return self._port

    async def _open(self) -> None:
        self._gateway = Gateway(self._config, self._loop)
        route = Route(
            self._port,
            "mine",
            "linear/v1",
            open=self._open_to_all,
            backends=(backend(UID),),
        )
        await self._gateway.follow(Instruction({"service": route}))

    def __exit__(self, *_: object) -> None:
        assert self._gateway is not None
        asyncio.run_coroutine_threadsafe(self._gateway.drain(1.0), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()
