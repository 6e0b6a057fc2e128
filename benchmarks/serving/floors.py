"""What nobody can be below: the runtime called in a loop, and an echo."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

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


def runtime_us(file: Path, count: int, seconds: float = 0.5) -> float:
    """Processor time of a direct call with so many rows."""
    call, given = runtime(file).run, {"x": rows(file.parent.parent.name, count)}
    best = float("inf")
    for _ in range(5):
        calls, before, until = 0, time.process_time(), time.monotonic() + seconds / 5
        while time.monotonic() < until or not calls:
            call(["y"], given)
            calls += 1
        best = min(best, (time.process_time() - before) / calls)
    return best * 1e6


def echo_us() -> float:
    """Processor time of a request that is answered without being read, on the event loop of the model server."""
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", _ECHO, str(port)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            asked = Question("/", b"{}", lambda body: body, grpc=False)  # type: ignore[arg-type,return-value]
            costs = []
            for _ in range(3):
                before = cpu_seconds([process.pid])
                press(port, asked, 20_000, clients=32)
                costs.append((cpu_seconds([process.pid]) - before) / 20_000 * 1e6)
            return min(costs)
        finally:
            process.terminate()
