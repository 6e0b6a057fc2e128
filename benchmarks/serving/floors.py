"""What nobody can be below: the runtime called in a loop, and an echo."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from load.machine import cpu_seconds

from serving.models import Array, rows, runtime
from serving.pressing import press
from serving.queries import Question
from serving.servers import free_port

_ECHO = """
import asyncio, sys, uvloop
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Length: 25\\r\\n\\r\\n" + b"." * 25
class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(ANSWER)
async def main():
    await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", int(sys.argv[1]))
    print("listens", flush=True)
    await asyncio.Event().wait()
uvloop.run(main())
"""


class Alone:
    """The runtime called by itself: the least processor time for a row or a request, by how it is
    called.

    It is measured again and again, in between what it stands beside: on some machines the next
    minute differs.
    """

    def __init__(self, file: Path) -> None:
        self._call = runtime(file).run
        self._model = file.parent.parent.name
        self._ways: dict[str, tuple[list[Array], int]] = {}
        self.us: dict[str, float] = {}

    def add(self, way: str, *, count: int = 1, inputs: int = 1, shared: int = 1) -> None:
        """A way: so many rows at once, for ``shared`` requests; several ``inputs`` take turns,
        in no near cache.
        """
        given = rows(self._model, count)
        self._ways[way] = [given.copy() for _ in range(inputs)], shared
        self.us[way] = float("inf")

    def measure(self, seconds: float) -> None:
        """Each way, for so long."""
        for way, (inputs, shared) in self._ways.items():
            calls, before, until = 0, time.process_time(), time.monotonic() + seconds
            while time.monotonic() < until or not calls:
                self._call(["y"], {"x": inputs[calls % len(inputs)]})
                calls += 1
            self.us[way] = min(self.us[way], (time.process_time() - before) / calls / shared * 1e6)


@contextlib.contextmanager
def echo() -> Iterator[tuple[subprocess.Popen[bytes], int, Question]]:
    """What answers without reading the question, on the event loop of the model server."""
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-c", _ECHO, str(port)], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield (
                process,
                port,
                Question("/", b"{}", lambda body: np.frombuffer(body, np.uint8), grpc=False),
            )
        finally:
            process.terminate()


def echo_us() -> float:
    """Processor time of an echo."""
    costs = []
    with echo() as (process, port, query):
        for _ in range(3):
            before = cpu_seconds([process.pid])
            press(port, query, 20_000, clients=32)
            costs.append((cpu_seconds([process.pid]) - before) / 20_000 * 1e6)
    return min(costs)
