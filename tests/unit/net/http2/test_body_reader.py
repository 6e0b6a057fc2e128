"""Long bodies, over real sockets: wherever the bytes are cut, and whatever happens in the middle
of them.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from cloud_ml.net.budget import Budget
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.body_reader import STAYS, DirectBodyReader
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.frames import frame, literal
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Limits, Received
from cloud_ml.net.loop_iteration import LoopIteration

HEAD = b"\x83\x86\x44\x05/echo"
OPEN = frame(frames.HEADERS, frames.END_HEADERS, 1, HEAD)
MEGABYTE = 1 << 20
Loop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(
    params=[uvloop.new_event_loop, asyncio.SelectorEventLoop], ids=["uvloop", "asyncio"]
)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def running(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(test, 60))

    return running


class Service:
    """Keeps what it is asked, and answers nothing in particular."""

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.more = asyncio.Event()

    def understand(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        return dict(fields)[b":path"]

    def length(self, head: bytes, begun: memoryview) -> int:
        return int.from_bytes(begun[1:5], "big") + 5

    def serve(self, connection: Answers, stream: int, head: bytes, body: Received) -> None:
        self.served.append(bytes(body))
        self.more.set()
        connection.answer(stream, b"\x88", (2, (b"ok",)), literal("grpc-status", "0"))

    def sink(self, connection: Answers, stream: int, head: bytes) -> None:
        return None


class World:
    """A connection of a real server, its client's end, and what was served."""

    def __init__(
        self, connection: Http2Connection[bytes], service: Service, budget: Budget
    ) -> None:
        self.connection, self.service, self.budget = connection, service, budget
        self.lost = asyncio.Event()
        lost = connection.connection_lost

        def noted(exc: Exception | None) -> None:
            lost(exc)
            self.lost.set()

        connection.connection_lost = noted  # type: ignore[method-assign]

    @property
    def transport(self) -> asyncio.Transport:
        assert self.connection._transport is not None
        return self.connection._transport

    @property
    def straight(self) -> bool:
        return isinstance(self.transport.get_protocol(), DirectBodyReader)

    async def serves(self, count: int) -> list[bytes]:
        while len(self.service.served) < count:
            self.service.more.clear()
            await self.service.more.wait()
        return self.service.served

    async def gathers(self, size: int) -> None:
        """Until so much of the body of stream 1 has come."""
        while (
            (stream := self.connection._requests.streams.get(1)) is None
            or stream.body is None
            or stream.body.size < size
        ):
            await asyncio.sleep(0)


@asynccontextmanager
async def world(**limits: Any) -> AsyncIterator[tuple[World, asyncio.StreamWriter]]:
    loop, service, budget = asyncio.get_running_loop(), Service(), Budget()
    connection_limits = Limits(
        **({"body_bytes": 8 * MEGABYTE, "too_large": lambda _: (), "budget": budget} | limits)
    )
    made: list[World] = []

    def connected() -> Http2Connection[bytes]:
        connection = Http2Connection(service, connection_limits, LoopIteration(loop))
        made.append(World(connection, service, budget))
        return connection

    server = await loop.create_server(connected, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    writer.write(frames.PREFACE + frames.settings({}))
    await reader.read(9)  # the server's own, so that its end is there
    swallowing = asyncio.ensure_future(_swallow(reader))
    try:
        yield made[0], writer
        assert budget.held == 0 or made[0].connection._requests.streams
    finally:
        writer.close()
        swallowing.cancel()
        server.close()


async def _swallow(reader: asyncio.StreamReader) -> None:
    while await reader.read(MEGABYTE):
        pass


@functools.cache
def message(size: int, length: int | None = None) -> bytes:
    """A message with its prefix; ``length`` is what that says where it lies."""
    return (
        b"\0"
        + (size if length is None else length).to_bytes(4, "big")
        + random.Random(size).randbytes(size)
    )


def request(number: int, body: bytes, most: int, *, last: bytes | None = None) -> bytes:
    """A request with its body in frames of so many bytes; an empty one at the end with ``last``
    as its padding.
    """
    pieces = [body[at : at + most] for at in range(0, len(body), most)]
    ends = [0] * len(pieces)
    if last is None:
        ends[-1] = frames.END_STREAM
    sent = [
        frame(frames.DATA, flags, number, piece) for flags, piece in zip(ends, pieces, strict=True)
    ]
    if last is not None:
        sent.append(
            frame(frames.DATA, frames.END_STREAM | frames.PADDED, number, bytes([len(last)]) + last)
        )
    return frame(frames.HEADERS, frames.END_HEADERS, number, HEAD) + b"".join(sent)


@pytest.mark.parametrize("most", [16_384, 65_536, 200_000, MEGABYTE])
@pytest.mark.parametrize("cut", [0, 9, 70_001])
def test_every_body_arrives_whole(run: Any, most: int, cut: int) -> None:
    """One after the other on one connection; written at once, or with a pause after so many
    bytes.
    """
    sizes = [602_112, 5, 70_000, 3 * MEGABYTE, 131_072, 0, 300_000, 300_000, 1]
    bodies = [message(size) for size in sizes]
    sent = b"".join(request(2 * place + 1, body, most) for place, body in enumerate(bodies))

    async def test() -> None:
        async with world() as (server, writer):
            if cut:
                writer.write(sent[:cut])
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(sent[cut:])
            assert await server.serves(len(bodies)) == bodies

    run(test())


@pytest.mark.parametrize("length", [0, 10, 300_000, 2**32 - 1])
def test_how_long_one_says_it_will_be_changes_nothing(run: Any, length: int) -> None:
    body = message(MEGABYTE, length)

    async def test() -> None:
        async with world() as (server, writer):
            writer.write(request(1, body, MEGABYTE) + request(3, b"after", 9))
            assert await server.serves(2) == [body, b"after"]

    run(test())


def test_what_comes_in_one_piece_needs_no_copy_and_what_follows_goes_the_ordinary_way(
    run: Any,
) -> None:
    body = message(700_000)
    sent = request(1, body, MEGABYTE)

    async def test() -> None:
        async with world() as (server, writer):
            writer.write(sent[:300_000])
            await server.gathers(280_000)
            assert server.straight
            writer.write(sent[300_000:])
            assert await server.serves(1) == [body]
            for place in range(1, STAYS + 1):
                assert server.straight
                writer.write(request(2 * place + 1, b"small", 9))  # and not another long one
                await server.serves(1 + place)
            assert not server.straight

    run(test())


def test_one_long_body_after_the_other_is_no_handing_over(run: Any) -> None:
    """In frames of either size, with short requests between them."""
    sent = [
        request(4 * place + 1, message(602_112), most)
        for place, most in enumerate([MEGABYTE, 16_384] * 5)
    ]
    small = [request(4 * place + 3, b"small", 9) for place in range(len(sent))]
    ways: set[asyncio.BaseProtocol] = set()

    async def test() -> None:
        async with world() as (server, writer):
            for place, each in enumerate(sent):
                writer.write(each + small[place])
                served = await server.serves(2 * place + 2)
                assert sorted(served[-2:]) == [message(602_112), b"small"]
                ways.add(server.transport.get_protocol())
            assert len(ways) == 1
            assert server.straight

    run(test())


def test_short_frames_of_long_bodies_are_read_through_memory_that_is_used_again(run: Any) -> None:
    """Two bodies in turns, others between them, and what is no data: all through the same
    memory.
    """
    first, second = message(900_000), message(800_000)
    cut = [request(number, body, 16_384) for number, body in ((1, first), (3, second))]
    lead = len(frame(frames.HEADERS, 0, 1, HEAD)) + 16_393
    turns = b"".join(
        cut[way][place : place + 16_393]
        for place in range(lead, max(map(len, cut)), 16_393)
        for way in (0, 1)
    )  # fmt: skip
    between = frame(frames.PING, 0, 0, bytes(8)) + request(5, b"small", 3) + request(7, b"whole", 9)

    async def test() -> None:
        async with world() as (server, writer):
            writer.write(cut[0][:lead] + cut[1][:lead] + turns[:500_001])
            await server.gathers(100_000)
            assert server.straight
            boundary = 40 * 16_393
            writer.write(turns[500_001:boundary] + between + turns[boundary:])
            assert sorted(await server.serves(4)) == sorted([b"small", b"whole", first, second])

    run(test())


def test_the_end_may_come_alone(run: Any) -> None:
    body = message(700_000)

    async def test() -> None:
        async with world() as (server, writer):
            writer.write(
                request(1, body, 200_000, last=b"...") + request(3, body, MEGABYTE, last=b"")
            )
            assert await server.serves(2) == [body, body]

    run(test())


def test_who_is_given_up_in_the_middle_is_passed_over(run: Any) -> None:
    body = message(900_000)
    sent = request(1, body, MEGABYTE)

    async def test() -> None:
        async with world(body_s=1) as (server, writer):
            writer.write(sent[:300_000])
            await server.gathers(280_000)
            for _ in range(3):
                server.connection.tick(0.0)
            assert server.budget.held == 0
            writer.write(sent[300_000:] + request(3, body, MEGABYTE))
            assert await server.serves(1) == [body]

    run(test())


def test_who_goes_in_the_middle_leaves_nothing(run: Any) -> None:
    async def test() -> None:
        async with world() as (server, writer):
            writer.write(request(1, message(900_000), MEGABYTE)[:300_000])
            await server.gathers(280_000)
            assert server.budget.held
            writer.close()
            await server.lost.wait()
            assert server.budget.held == 0

    run(test())


def test_one_that_is_too_large_costs_the_others_nothing(run: Any) -> None:
    body = message(400_000)

    async def test() -> None:
        async with world(body_bytes=500_000) as (server, writer):
            writer.write(
                request(1, message(MEGABYTE), 300_000) + request(3, message(MEGABYTE, 9), MEGABYTE)
            )
            writer.write(request(5, body, MEGABYTE))
            assert await server.serves(1) == [body]

    run(test())


def test_more_than_the_window_allows_ends_the_connection(run: Any) -> None:
    async def test() -> None:
        async with world(window=200_000) as (server, writer):
            writer.write(request(1, message(900_000), MEGABYTE)[:300_000])
            await server.gathers(280_000)
            server.connection._requests.streams[
                1
            ].unacknowledged = 199_000  # as if no update had been sent yet
            writer.write(bytes(100_000))
            await server.lost.wait()
            assert server.budget.held == 0

    run(test())


def test_nothing_is_read_while_the_peer_does_not_read(run: Any) -> None:
    body = message(900_000)
    sent = request(1, body, MEGABYTE)

    async def test() -> None:
        async with world() as (server, writer):
            writer.write(sent[:300_000])
            await server.gathers(280_000)
            protocol: Any = server.transport.get_protocol()
            protocol.pause_writing()
            assert not server.transport.is_reading()
            writer.write(sent[300_000:])
            await asyncio.sleep(0)
            assert server.service.served == []
            protocol.resume_writing()
            assert await server.serves(1) == [body]

    run(test())
