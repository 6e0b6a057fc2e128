"""The client side of HTTP/2 against a peer that nobody here wrote: the package h2."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from cloud_ml.gateway.client_limits import ClientLimits
from cloud_ml.gateway.http2 import Http2Client
from cloud_ml.net.budget import Budget
from cloud_ml.net.http2 import frames
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.work_share import WorkShare
from support.measuring import growth

pytestmark = pytest.mark.anyio
HEAD = b"".join(
    frames.literal(name, value)
    for name, value in (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a/B"),
        (":authority", "replica"),
    )
)
Answer = Callable[[h2.connection.H2Connection, int, bytes], None]


def shared(share: WorkShare, report: Callable[[str], None] = lambda _: None) -> Any:
    """What a client has in common with the others of its replica."""
    return {"share": share, "report": report, "bodies": Budget()}


class Caller:
    """Waits for an answer."""

    streams = False

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def began(self, head: bytes) -> None: ...
    def piece(self, data: bytes) -> None: ...

    def ended(self, head: bytes, body: tuple[bytes, ...], size: int, trailers: bytes) -> None:
        assert size == sum(map(len, body))
        self.answer.set_result((head, b"".join(body), trailers))

    def failed(self, *, refused: bool, too_large: bool = False, no_room: bool = False) -> None:
        self.answer.set_result({"refused": refused, "too_large": too_large})


class Peer:
    """A server of h2 that answers a whole request by ``answer``."""

    def __init__(self, answer: Answer, **settings: int) -> None:
        self.answer = answer
        self.settings = settings
        self.bodies: dict[int, bytes] = {}
        self.resets: list[int] = []
        self.unsent: dict[int, bytes] = {}
        self.over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                h2.settings.SettingCodes[name.upper()]: value
                for name, value in self.settings.items()
            },
        )
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while data := await reader.read(65_536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.DataReceived):
                    self.bodies[event.stream_id] = (
                        self.bodies.get(event.stream_id, b"") + event.data
                    )
                    connection.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                elif isinstance(event, h2.events.StreamEnded):
                    self.answer(connection, event.stream_id, self.bodies.get(event.stream_id, b""))
                elif isinstance(event, h2.events.StreamReset):
                    self.resets.append(event.stream_id)
                elif isinstance(event, h2.events.WindowUpdated):
                    for number in list(self.unsent):
                        self.send(connection, number)
            writer.write(connection.data_to_send())
            if connection.state_machine.state is h2.connection.ConnectionState.CLOSED:
                break
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.over.set()

    def send(self, connection: h2.connection.H2Connection, number: int) -> None:
        """As much of a long answer as the windows take."""
        while rest := self.unsent[number]:
            size = min(
                len(rest),
                connection.local_flow_control_window(number),
                connection.max_outbound_frame_size,
            )
            if size <= 0:
                return
            connection.send_data(number, rest[:size])
            self.unsent[number] = rest[size:]
        del self.unsent[number]
        connection.send_headers(number, [("grpc-status", "0")], end_stream=True)


async def exchange(peer: Peer, *bodies: bytes, limits: ClientLimits | None = None) -> list[Any]:
    """What becomes of calls that are made at once."""
    async with connected(peer, limits or ClientLimits()) as client:
        callers = [Caller() for _ in bodies]
        for caller, body in zip(callers, bodies, strict=True):
            client.call(HEAD, body, caller)
        async with asyncio.timeout(60):
            return [await caller.answer for caller in callers]


@contextlib.asynccontextmanager
async def connected(peer: Peer, limits: ClientLimits) -> AsyncIterator[Http2Client]:
    """A connection to a peer, which ends with the block."""
    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
        client = Http2Client(
            limits,
            LoopIteration(loop),
            lambda _: None,
            **shared(WorkShare(limits.turn_units, loop)),
        )
        await loop.create_connection(
            lambda: client, "127.0.0.1", server.sockets[0].getsockname()[1]
        )
        yield client
        client.leave()
        async with asyncio.timeout(60):
            await peer.over.wait()


def echo(connection: h2.connection.H2Connection, number: int, body: bytes) -> None:
    connection.send_headers(number, [(":status", "200"), ("content-type", "application/grpc")])
    connection.send_data(number, body)
    connection.send_headers(number, [("grpc-status", "0")], end_stream=True)


async def test_an_answer_is_whole() -> None:
    [(head, body, trailers)] = await exchange(Peer(echo), b"hello")
    assert head == b"\x88" + frames.literal("content-type", "application/grpc")
    assert (body, trailers) == (b"hello", frames.literal("grpc-status", "0"))


async def test_many_at_once_and_no_more_than_the_peer_takes() -> None:
    peer = Peer(echo, max_concurrent_streams=3)
    bodies = [b"%d" % number for number in range(50)]
    async with connected(peer, ClientLimits()) as client, asyncio.timeout(60):
        for together in (
            [b"first"],
            bodies,
        ):  # h2 hangs up on who opens too many before it can know
            callers = [Caller() for _ in together]
            for caller, body in zip(callers, together, strict=True):
                client.call(HEAD, body, caller)
            assert [(await caller.answer)[1] for caller in callers] == together


async def test_large_ones_within_small_windows() -> None:
    def answer(connection: h2.connection.H2Connection, number: int, body: bytes) -> None:
        connection.send_headers(number, [(":status", "200")])
        peer.unsent[number] = body[::-1]
        peer.send(connection, number)

    peer = Peer(answer, initial_window_size=1000)
    sent = bytes(range(256)) * 4000
    async with connected(peer, ClientLimits(window=70_000)) as client, asyncio.timeout(60):
        for each in (b"first", sent):
            caller = Caller()
            client.call(HEAD, each, caller)
            assert (await caller.answer)[1] == each[::-1]


async def test_what_is_refused_and_what_was_begun() -> None:
    def refuse(connection: h2.connection.H2Connection, number: int, body: bytes) -> None:
        connection.reset_stream(
            number, frames.REFUSED_STREAM if body == b"refuse" else frames.INTERNAL_ERROR
        )

    first, second = await exchange(Peer(refuse), b"refuse", b"break")
    assert first == {"refused": True, "too_large": False}
    assert second == {"refused": False, "too_large": False}


async def test_a_peer_that_leaves_has_not_begun_the_later_ones() -> None:
    def leave(connection: h2.connection.H2Connection, number: int, body: bytes) -> None:
        if number == 1:
            echo(connection, number, body)
            connection.close_connection(last_stream_id=1)

    first, second = await exchange(Peer(leave), b"one", b"two")
    assert first[1] == b"one"
    assert second == {"refused": True, "too_large": False}


async def test_too_large_an_answer() -> None:
    peer = Peer(lambda connection, number, _: echo(connection, number, b"x" * 2000))
    assert await exchange(peer, b"", limits=ClientLimits(body_bytes=1000)) == [
        {"refused": False, "too_large": True}
    ]


@pytest.mark.parametrize(
    "fields",
    [
        [("grpc-status", "0")],
        [(":status", "abc")],
        [(":status", "200"), (":path", "/")],
        [(":status", "200"), ("X", "y")],
    ],
)
async def test_a_head_that_is_none(fields: list[tuple[str, str]]) -> None:
    def answer(connection: h2.connection.H2Connection, number: int, body: bytes) -> None:
        connection.config.validate_outbound_headers = (
            connection.config.normalize_outbound_headers
        ) = False
        connection.send_headers(number, fields, end_stream=True)

    assert await exchange(Peer(answer), b"") == [{"refused": False, "too_large": False}]


async def test_a_call_that_nobody_waits_for() -> None:
    peer = Peer(lambda *_: None)
    async with connected(peer, ClientLimits()) as client:
        caller = Caller()
        client.call(HEAD, b"x", caller)
        while 1 not in peer.bodies:
            await asyncio.sleep(0.001)
        client.cancel(caller)
        async with asyncio.timeout(60):
            while peer.resets != [1]:
                await asyncio.sleep(0.001)
        assert not caller.answer.done()


async def test_a_replica_that_does_not_read_is_not_read_from() -> None:
    """What is written to it waits for it, and does not grow; after a while it is hung up on."""
    loop, reasons = asyncio.get_running_loop(), list[str]()
    peer, ours = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    limits = ClientLimits(control_frames=10**9, unread_s=3)
    client = Http2Client(
        limits,
        LoopIteration(loop),
        lambda _: None,
        **shared(WorkShare(10**9, loop), reasons.append),
    )
    transport, _ = await loop.create_connection(lambda: client, sock=ours)
    peer.setblocking(False)
    ping = frames.frame(frames.PING, 0, 0, bytes(8))
    await loop.sock_sendall(peer, frames.settings({}))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            await loop.sock_sendall(peer, ping * 2_000_000)
            raise AssertionError("it took 34 MB of a replica that reads nothing")
    assert transport.get_write_buffer_size() < 2 << 20
    callers = [Caller() for _ in range(100)]
    for caller in callers:
        client.call(HEAD, bytes(100_000), caller)
    assert transport.get_write_buffer_size() < 2 << 20, "requests wait as well"
    for _ in range(limits.unread_s + 1):
        client.tick()
    assert [await caller.answer for caller in callers] == [
        {"refused": True, "too_large": False}
    ] * 100
    assert reasons == ["requests left unread for 3 s"]
    peer.close()


async def test_answers_are_read_while_a_replica_waits_with_reading_until_they_are() -> None:
    """Both sides of a connection that wait with reading until the other reads wait for ever."""
    loop = asyncio.get_running_loop()
    peer, ours = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client = Http2Client(
        ClientLimits(), LoopIteration(loop), lambda _: None, **shared(WorkShare(10**9, loop))
    )
    transport, _ = await loop.create_connection(lambda: client, sock=ours)
    peer.setblocking(False)
    await loop.sock_sendall(peer, frames.settings({4: 8 << 20}) + frames.window_update(0, 8 << 20))
    first, second = Caller(), Caller()
    client.call(HEAD, b"", first)
    while not client._settled:
        await asyncio.sleep(0)
    client.call(HEAD, bytes(4 << 20), second)
    while not transport.get_write_buffer_size():
        await asyncio.sleep(0)
    answer = (
        frames.frame(frames.HEADERS, 0x4, 1, b"\x88")
        + frames.frame(frames.DATA, 0, 1, bytes(60_000)) * 100
    )
    async with asyncio.timeout(60):
        await loop.sock_sendall(peer, answer + frames.frame(frames.DATA, frames.END_STREAM, 1))
        found = await first.answer
    assert transport.get_write_buffer_size(), "it still does not read"
    assert len(found[1]) == 6_000_000
    transport.abort()
    peer.close()


async def test_many_calls_are_cancelled_in_linear_time() -> None:
    loop = asyncio.get_running_loop()
    limits = ClientLimits()

    def waiting(count: int) -> Callable[[], object]:
        client = Http2Client(
            limits,
            LoopIteration(loop),
            lambda _: None,
            **shared(WorkShare(limits.turn_units, loop)),
        )
        client.connection_made(cast("Any", _NoTransport()))
        callers = [Caller() for _ in range(count)]
        for caller in callers:
            client.call(HEAD, b"", caller)

        def cancel() -> None:
            for caller in reversed(callers):
                client.cancel(caller)

        return cancel

    _, power = growth(waiting, 2_000)
    assert power < 1.5, "it took 26 seconds when each was searched for"


class _NoTransport:
    def write(self, data: bytes) -> None: ...


async def test_a_turn_does_a_bounded_amount_of_work() -> None:
    """A replica that sends much is read over several turns, and others have theirs in between."""
    loop = asyncio.get_running_loop()
    share = WorkShare(10, loop)
    done: list[str] = []

    def work(name: str) -> None:
        for _ in range(25):
            if not share.spend(1):
                share.defer(lambda: work(name))
                return
            done.append(name)

    work("first")
    work("second")
    assert done == ["first"] * 10
    await asyncio.sleep(0)
    assert len(done) == 20
    while len(done) < 60:
        await asyncio.sleep(0)
    assert done.count("second") > 10
