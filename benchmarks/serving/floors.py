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

from serving.asking import Question
from serving.models import rows, runtime
from serving.pressing import press
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


def runtime_us(file: Path, count: int, seconds: float = 0.5, *, inputs: int = 1) -> float:
    """Processor time of a direct call with so many rows; several ``inputs`` take turns, in no near cache."""
    call, given = runtime(file).run, rows(file.parent.parent.name, count)
    many = [{"x": given.copy()} for _ in range(inputs)]
    best = float("inf")
    for _ in range(5):
        calls, before, until = 0, time.process_time(), time.monotonic() + seconds / 5
        while time.monotonic() < until or not calls:
            call(["y"], many[calls % inputs])
            calls += 1
        best = min(best, (time.process_time() - before) / calls)
    return best * 1e6


@contextlib.contextmanager
def echo() -> Iterator[tuple[subprocess.Popen[bytes], int, Question]]:
    """What answers without reading the question, on the event loop of the model server."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", _ECHO, str(port)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process, port, Question("/", b"{}", lambda body: np.frombuffer(body, np.uint8), grpc=False)
        finally:
            process.terminate()


def echo_us() -> float:
    """Processor time of an echo."""
    costs = []
    with echo() as (process, port, asked):
        for _ in range(3):
            before = cpu_seconds([process.pid])
            press(port, asked, 20_000, clients=32)
            costs.append((cpu_seconds([process.pid]) - before) / 20_000 * 1e6)
    return min(costs)
