"""A replica that answers every call with its body, as a process:
``python -m support.honest_replica SOCKET``.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.connection import Http1Connection
from cloud_ml.net.http1.heads import Head, Heads
from cloud_ml.net.http1.limits import Limits as Http1Limits
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Limits as Http2Limits
from cloud_ml.net.http2.stream import Received
from cloud_ml.net.listening import Alive, ProtocolSniffer
from cloud_ml.net.loop_iteration import LoopIteration

HEAD = b"\x88" + frames.literal("content-type", "application/grpc")
TRAILERS = frames.literal("grpc-status", "0")
MOST = 64 << 20


class _Http1Echo:
    judge = None

    def understand(self, head: Head) -> None: ...

    def serve(self, call: HttpCall, _meaning: None, body: bytes) -> None:
        call.json(bytes(body) or b"{}")


class _Http2Echo:
    judge = None

    def understand(self, fields: list[tuple[bytes, bytes]]) -> bool:
        return True

    def length(self, head: bool, begun: memoryview) -> int:
        return 0

    def serve(self, connection: Answers, stream: int, head: bool, body: Received) -> None:
        connection.answer(stream, HEAD, (len(body), (bytes(body),)), TRAILERS)

    def sink(self, connection: Answers, stream: int, head: bool) -> None: ...


async def main(path: str) -> None:
    """Answer for ever."""
    loop = asyncio.get_running_loop()
    iteration, clock, alive = LoopIteration(loop), Clock(loop), Alive()
    clock.start()
    first, second = _Http1Echo(), _Http2Echo()
    limits: Any = Http2Limits(MOST, lambda _: ())
    heads: Heads[None] = Heads(first.understand)
    server = await loop.create_unix_server(
        lambda: ProtocolSniffer(
            lambda: Http1Connection(first, heads, Http1Limits(), iteration, clock),
            lambda: Http2Connection(second, limits, iteration),
            alive,
        ),
        path,
    )
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
