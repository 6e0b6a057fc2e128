"""What a caller sends costs a bounded amount of work in a turn, however much comes at once. See
``hostile_callers``.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.connection import Http1Connection
from cloud_ml.net.http1.heads import Heads
from cloud_ml.net.http1.limits import Limits as Http1Limits
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.http_requests import HttpOverHttp2
from cloud_ml.net.http2.stream import Limits
from cloud_ml.net.listening import Alive, ProtocolSniffer
from cloud_ml.net.loop_iteration import TURN_UNITS, LoopIteration
from cloud_ml.serving.call_metrics import Refusals
from cloud_ml.serving.grpc.service import GrpcService
from cloud_ml.serving.rest.service import HttpService
from support.hostile_callers import BULK, FLOODS, HELLO, Flood, head

READ = 262_144
"""Bytes that uvloop reads at once."""
CALLS = 20 * TURN_UNITS
"""Calls of functions that the units of a turn may stand for; reading all at once takes ten times
as many and more.
"""
MANY_TURNS = 20_000
MOST_BYTES = 4 << 20
REQUEST = head("/r")


@dataclass
class Loop:
    """Runs one turn when the test says so."""

    soon: deque[Callable[[], None]] = field(default_factory=deque)

    def time(self) -> float:
        return 1_000.0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        for _ in range(len(self.soon)):
            self.soon.popleft()()


class Transport:
    """Says whether it is read from, and who gets what it reads."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.reading = True
        self.closing = False
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """It goes on reading."""

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def receive(self, data: bytes) -> None:
        """Give it to the protocol as uvloop does, as long as it reads."""
        while data and self.reading and not self.closing:
            if hasattr(self.protocol, "get_buffer"):
                room = self.protocol.get_buffer(-1)
                size = min(len(room), len(data))
                room[:size] = data[:size]
                data = data[size:]
                self.protocol.buffer_updated(size)
            else:
                piece, data = data, b""
                self.protocol.data_received(piece)


class Server:
    """A model server without models, and one connection to it. With ``units`` for a turn, it
    answers everything.
    """

    def __init__(self, units: int = 0) -> None:
        loop: Any = Loop()
        self.loop: Loop = loop
        iteration, clock, alive = LoopIteration(loop, units or TURN_UNITS), Clock(loop), Alive()
        limits = Http1Limits()
        self.http = Recorded(iteration)
        http = self.http if units else HttpService((), Refusals())
        grpc = GrpcService({}, 64 << 20, loop, http=HttpOverHttp2(http, limits, clock, loop))
        heads = Heads(http.understand)
        self.iteration = iteration
        greeting = ProtocolSniffer(
            lambda: Http1Connection(http, heads, limits, iteration, clock),
            lambda: Http2Connection(
                grpc, Limits(64 << 20, lambda number: (frames.reset(number, 0),)), iteration
            ),
            alive,
        )
        self.transport = Transport(greeting)
        transport: Any = self.transport
        greeting.connection_made(transport)


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many functions are called meanwhile."""
    calls = [0]

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            calls[0] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def block_of(flood: Flood) -> bytes:
    """As much of it as is read at once."""
    block, blocks = b"", flood.blocks()
    while len(block) < READ:
        block += next(blocks)
    return block[:READ]


@pytest.mark.parametrize("name", sorted(set(FLOODS) - BULK))
def test_a_turn_does_a_bounded_part_of_a_flood(name: str) -> None:
    """And the rest goes on in later turns, until all of it was read or the connection is closed."""
    server, flood, block = Server(), FLOODS[name], block_of(FLOODS[name])
    if flood.begin:
        server.transport.receive(flood.begin)
    while server.loop.soon:
        server.loop.turn()
    turns, most = 0, 0
    with counted() as calls:
        server.transport.receive(block)
        most = calls[0]
        while server.loop.soon and not server.transport.closing:
            calls[0] = 0
            server.loop.turn()
            most, turns = max(most, calls[0]), turns + 1
            assert turns < MANY_TURNS
    assert most < CALLS, f"{most} calls in one turn"
    assert server.transport.reading or server.transport.closing


def test_a_small_request_waits_for_no_flood() -> None:
    """A connection may always do a little, whatever others did in the same turn."""
    server = Server()
    server.iteration.share.charge(100 * TURN_UNITS)
    server.transport.receive(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
    server.loop.turn()
    assert server.transport.written
    assert server.transport.reading


def http2_requests() -> bytes:
    """Requests of all forms: heads in pieces, bodies in pieces and whole, control frames
    between.
    """
    parts = [HELLO]
    for number in range(1, 401, 2):
        parts += (
            frames.frame(frames.HEADERS, 0, number, REQUEST[:20]),
            frames.frame(frames.CONTINUATION, frames.END_HEADERS, number, REQUEST[20:]),
            frames.frame(frames.DATA, 0, number, b"%d, " % number),
            frames.frame(frames.PING, 0, 0, bytes(8)) if number % 9 == 0 else b"",
            frames.window_update(number, 1),
            frames.frame(frames.DATA, frames.END_STREAM, number, b"x" * (number % 7)),
        )
    return b"".join(parts)


def http1_requests() -> bytes:
    """The same, pipelined: by length, in chunks, without a body, with new heads."""
    parts = []
    for number in range(1, 401, 2):
        body = b"%d, " % number
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
        parts += (
            b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (number, len(body))
            + body,
            b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n\r\n",
        )
    return b"".join(parts)


class Recorded(HttpService):
    """Keeps what it is asked, and answers at the end of the turn or at once, by the loop."""

    def __init__(self, iteration: LoopIteration) -> None:
        super().__init__((), Refusals())
        self.requests: list[tuple[str, bytes]] = []
        self._iteration = iteration

    def serve(self, call: HttpCall, meaning: object, body: bytes) -> None:
        self.requests.append((call.head.target, bytes(body)))
        number = b"%d" % len(self.requests)
        answer = lambda: call.reply(200, b"", number)  # noqa: E731
        if len(self.requests) % 2:
            self._iteration.run(answer)
        else:
            answer()


@pytest.mark.parametrize("make", [http1_requests, http2_requests])
@pytest.mark.parametrize("piece", [1, 97, 5_000, 1 << 20])
def test_requests_mean_the_same_however_many_turns_they_take(
    make: Callable[[], bytes], piece: int
) -> None:
    found = []
    for units in (10**9, 1):
        server = Server(units)
        data = make()
        for at in range(0, len(data), piece):
            while not server.transport.reading:
                server.loop.turn()
            server.transport.receive(data[at : at + piece])
        while server.loop.soon:
            server.loop.turn()
        assert server.transport.reading
        assert not server.transport.closing
        found.append((server.http.requests, server.transport.written))
    assert len(found[0][0]) in (200, 600)
    assert found[0] == found[1]


@pytest.mark.parametrize("name", sorted(BULK))
def test_a_turn_reads_a_bounded_number_of_bytes(name: str) -> None:
    """The kernel has megabytes of a fast caller, and uvloop reads them all in one turn."""
    server, flood, size = Server(TURN_UNITS), FLOODS[name], 0
    server.transport.receive(flood.begin)
    blocks = (
        block[at : at + READ] for block in flood.blocks() for at in range(0, len(block), READ)
    )
    while server.transport.reading and size < 8 * MOST_BYTES:
        block = next(blocks)
        server.transport.receive(block)
        size += len(block)
    assert size <= MOST_BYTES
    while server.loop.soon:
        server.loop.turn()
    assert server.transport.reading
