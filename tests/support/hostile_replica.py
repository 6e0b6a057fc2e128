"""Replicas that break every rule, as a process: ``python -m support.hostile_replica FOLDER``,
orders on standard input.

An order is a line of JSON. ``{"begin": NAME, "folder": F, "port": P}`` serves that behaviour at the
socket in ``F`` and calls the service at ``P`` with ``CALLERS`` callers, one call after the other.
``{"end": NAME}`` lets them end after the call that they are in; their outcomes come as a line of
JSON once all have ended. ``{"cut": NAME}`` ends them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_ml.domain.services.routes import SOCKET
from cloud_ml.net.http2 import frames

CALLERS = 8
BODY = bytes(200_000)
"""What callers send where the behaviour is about requests."""
LONGEST_S = 20.0
"""What a caller waits for at most, whatever the gateway does."""
INT = struct.Struct(">L")
SETTINGS = frames.settings({frames.MAX_CONCURRENT_STREAMS: 1_000})
HEAD = b"\x88" + frames.literal("content-type", "application/grpc")
OK = frames.frame(frames.HEADERS, 0x4, 1, HEAD)
Behave = Callable[["Peer"], Awaitable[None]]


class Peer:
    """A connection that the gateway made. A behaviour begins once the request has begun to
    arrive.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))
        await self.writer.drain()

    async def flood(self, part: bytes) -> None:
        """The same for ever."""
        many = part * max(1, 65_536 // len(part))
        while True:
            await self.send(many)

    async def drip(self, data: bytes, seconds: float = 0.02) -> None:
        for at in range(len(data)):
            await self.send(data[at : at + 1])
            await asyncio.sleep(seconds)

    async def wait(self) -> None:
        await asyncio.sleep(3_600)

    async def read_on(self) -> None:
        while await self.reader.read(65_536):
            pass

    def half_close(self) -> None:
        self.writer.write_eof()


@dataclass(frozen=True)
class Behaviour:
    """What a replica does, how it is called, and what must follow."""

    behave: Behave
    http2: bool
    hung_up: bool
    """Whether the gateway must close the connection with a reason."""
    error: bool
    """Whether each call must be answered with an error; some of these replicas answer well, and
    then do more.
    """
    body: bytes
    begin: bool
    """Whether it begins before there is a request."""
    path: str


BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(
    *, http2: bool = False, hung_up: bool = False, error: bool = True, body: bytes = b"x", begin: bool = False,
    path: str = "/a/B",
) -> Callable[[Behave], Behave]:  # fmt: skip
    def register(behave: Behave) -> Behave:
        BEHAVIOURS[behave.__name__] = Behaviour(behave, http2, hung_up, error, body, begin, path)
        return behave

    return register


# --- HTTP/1.1 ---


@behaviour(hung_up=True)
async def endless_interim_answers(peer: Peer) -> None:
    await peer.flood(b"HTTP/1.1 100 Continue\r\n\r\n")


@behaviour(hung_up=True)
async def endless_early_hints(peer: Peer) -> None:
    await peer.flood(b"HTTP/1.1 103 Early Hints\r\n" + b"Link: </x>\r\n" * 50 + b"\r\n")


@behaviour(hung_up=True)
async def endless_fields(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n")
    await peer.flood(b"X-Y: z\r\n")


@behaviour(hung_up=True)
async def fields_without_names(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n" + b":\r\n" * 5_000 + b"\r\n")


@behaviour(hung_up=True)
async def a_huge_head(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n")


@behaviour()
async def a_slow_head(peer: Peer) -> None:
    await peer.drip(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 10_000)


@behaviour()
async def silence(peer: Peer) -> None:
    await peer.wait()


@behaviour(begin=True, hung_up=True, error=False)
async def an_answer_before_the_request(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na" * 2)
    await peer.read_on()


@behaviour(hung_up=True, error=False)
async def two_answers(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na" * 2)
    await peer.read_on()


@behaviour()
async def a_body_shorter_than_it_says(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")


@behaviour(hung_up=True, error=False)
async def a_body_longer_than_it_says(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n")
    await peer.flood(b"more")


@behaviour()
async def a_body_larger_than_is_passed_on(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
    await peer.flood(b"more")


@behaviour()
async def a_body_byte_by_byte(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    await peer.drip(bytes(1_000_000), 0.0)


@behaviour(hung_up=True)
async def two_lengths(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")


@behaviour(hung_up=True)
async def a_length_that_is_none(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab")


@behaviour(hung_up=True)
async def chunks_without_end(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await peer.flood(b"1;a=b\r\nx\r\n")


@behaviour(hung_up=True)
async def garbage(peer: Peer) -> None:
    await peer.flood(os.urandom(65_536))


@behaviour(hung_up=True)
async def a_body_before_its_head(peer: Peer) -> None:
    await peer.send(b'{"outputs": []}\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n')


@behaviour(hung_up=True)
async def another_protocol(peer: Peer) -> None:
    await peer.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    )
    await peer.flood(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@behaviour()
async def a_reset(peer: Peer) -> None:
    peer.writer.transport.abort()


@behaviour()
async def half_closed(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-")
    peer.half_close()
    await peer.read_on()


@behaviour(body=BODY)
async def requests_that_are_not_read(peer: Peer) -> None:
    await peer.wait()


@behaviour(body=BODY, error=False)
async def answers_to_requests_that_are_not_read(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
    await peer.wait()


# --- HTTP/2 ---


@behaviour(http2=True, begin=True)
async def no_settings(peer: Peer) -> None:
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def pings(peer: Peer) -> None:
    await peer.send(SETTINGS)
    await peer.flood(frames.frame(frames.PING, 0, 0, bytes(8)))


@behaviour(http2=True, hung_up=True)
async def endless_settings(peer: Peer) -> None:
    await peer.flood(SETTINGS)


@behaviour(http2=True, hung_up=True, body=BODY)
async def settings_that_change_the_window(peer: Peer) -> None:
    none, some = (frames.settings({frames.INITIAL_WINDOW_SIZE: size}) for size in (0, 1))
    await peer.flood(none + some)


@behaviour(http2=True, hung_up=True, body=BODY)
async def windows_byte_by_byte(peer: Peer) -> None:
    await peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
    await peer.flood(frames.window_update(1, 1))


@behaviour(http2=True, hung_up=True)
async def a_window_that_overflows(peer: Peer) -> None:
    await peer.send(SETTINGS, *[frames.window_update(0, frames.LARGEST_WINDOW)] * 3)
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def resets_of_one_stream(peer: Peer) -> None:
    await peer.send(SETTINGS)
    await peer.flood(frames.reset(1, frames.CANCEL))


@behaviour(http2=True)
async def every_call_refused(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.reset(1, frames.REFUSED_STREAM))
    peer.writer.close()


@behaviour(http2=True, hung_up=True)
async def priorities(peer: Peer) -> None:
    await peer.send(SETTINGS)
    await peer.flood(frames.frame(frames.PRIORITY, 0, 1, bytes(5)))


@behaviour(http2=True, hung_up=True)
async def unknown_frames(peer: Peer) -> None:
    await peer.send(SETTINGS)
    await peer.flood(frames.frame(0x77, 0xFF, 7, b""))


@behaviour(http2=True, hung_up=True)
async def empty_data(peer: Peer) -> None:
    await peer.send(SETTINGS, OK)
    await peer.flood(frames.frame(frames.DATA, 0, 1))


@behaviour(http2=True, hung_up=True)
async def data_of_padding(peer: Peer) -> None:
    await peer.send(SETTINGS, OK)
    await peer.flood(frames.frame(frames.DATA, frames.PADDED, 1, bytes([200]) + bytes(200)))


@behaviour(http2=True)
async def data_byte_by_byte(peer: Peer) -> None:
    await peer.send(SETTINGS, OK)
    await peer.flood(frames.frame(frames.DATA, 0, 1, b"xy"))


@behaviour(http2=True, hung_up=True)
async def continuations_byte_by_byte(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.frame(frames.HEADERS, 0, 1, HEAD))
    await peer.flood(frames.frame(frames.CONTINUATION, 0, 1, b"\x00"))


@behaviour(http2=True, hung_up=True)
async def empty_continuations(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.frame(frames.HEADERS, 0, 1, HEAD))
    await peer.flood(frames.frame(frames.CONTINUATION, 0, 1))


@behaviour(http2=True, hung_up=True)
async def endless_interim_heads(peer: Peer) -> None:
    await peer.send(SETTINGS)
    await peer.flood(frames.frame(frames.HEADERS, 0x4, 1, b"\x08\x03100"))


@behaviour(http2=True, hung_up=True)
async def interim_heads_that_differ(peer: Peer) -> None:
    await peer.send(SETTINGS)
    number = 0
    while True:
        number += 1
        field = b"\x40" + frames.literal(f"x-{number}", "y" * 50)[1:]
        await peer.send(frames.frame(frames.HEADERS, 0x4, 1, b"\x08\x03103" + field))


@behaviour(http2=True, hung_up=True)
async def a_head_of_many_frames(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.frame(frames.HEADERS, 0, 1, HEAD))
    await peer.flood(frames.frame(frames.CONTINUATION, 0, 1, frames.literal("x", "y" * 1_000)))


@behaviour(http2=True, hung_up=True)
async def a_table_that_expands(peer: Peer) -> None:
    entry = b"\x40" + frames.literal("x", "y" * 4_000)[1:]
    await peer.send(SETTINGS, frames.frame(frames.HEADERS, 0x4, 1, HEAD + entry + b"\xbe" * 10_000))
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def a_table_that_is_resized(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.frame(frames.HEADERS, 0x4, 1, b"\x20" * 16_000 + HEAD))
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def many_small_fields(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.frame(frames.HEADERS, 0x4, 1, HEAD + b"\x82" * 400))
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def codes_of_huffman(peer: Peer) -> None:
    packed = b"\x00\x01x\xff\x81\x77" + b"\x00" * 15_200
    await peer.send(SETTINGS, frames.frame(frames.HEADERS, 0x4, 1, HEAD + packed))
    await peer.wait()


@behaviour(http2=True)
async def a_farewell_at_once(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.goaway(0, 0))
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def endless_farewells(peer: Peer) -> None:
    await peer.send(SETTINGS)
    await peer.flood(frames.goaway(frames.LARGEST_WINDOW, 0))


@behaviour(http2=True, hung_up=True)
async def a_frame_that_is_too_large(peer: Peer) -> None:
    await peer.send(SETTINGS, OK, frames.HEAD.pack(0xFFFF, 0xFF, frames.DATA, 0, 1))
    await peer.flood(b"more")


@behaviour(http2=True)
async def half_a_frame(peer: Peer) -> None:
    await peer.send(SETTINGS, OK, frames.frame(frames.DATA, 0, 1, bytes(1_000))[:500])
    await peer.wait()


@behaviour(http2=True)
async def a_frame_byte_by_byte(peer: Peer) -> None:
    await peer.send(SETTINGS, OK)
    await peer.drip(frames.frame(frames.DATA, 0, 1, bytes(60_000)), 0.0)


@behaviour(http2=True, hung_up=True)
async def a_push(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.frame(frames.PUSH_PROMISE, 0x4, 1, INT.pack(2) + HEAD))
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def data_before_its_head(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.frame(frames.DATA, 1, 1, b"x"))
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def an_unrequested_answer(peer: Peer) -> None:
    await peer.send(SETTINGS, frames.frame(frames.HEADERS, 0x5, 999, HEAD))
    await peer.wait()


@behaviour(http2=True, hung_up=True, error=False)
async def two_ends(peer: Peer) -> None:
    await peer.send(SETTINGS, *[frames.frame(frames.HEADERS, 0x5, 1, HEAD)] * 2)
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def two_heads(peer: Peer) -> None:
    await peer.send(SETTINGS, OK, OK)
    await peer.wait()


@behaviour(http2=True)
async def a_head_and_no_more(peer: Peer) -> None:
    await peer.send(SETTINGS, OK)
    await peer.wait()


@behaviour(http2=True)
async def no_streams_at_all(peer: Peer) -> None:
    await peer.send(frames.settings({frames.MAX_CONCURRENT_STREAMS: 0}))
    await peer.wait()


@behaviour(http2=True, body=BODY)
async def a_window_of_nothing(peer: Peer) -> None:
    await peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
    await peer.wait()


@behaviour(http2=True, body=BODY)
async def large_windows_and_no_reading(peer: Peer) -> None:
    most = frames.LARGEST_WINDOW
    more = frames.window_update(0, most - frames.DEFAULT_WINDOW)
    await peer.send(frames.settings({frames.INITIAL_WINDOW_SIZE: most}), more)
    await peer.wait()


@behaviour(http2=True)
async def half_closed_http2(peer: Peer) -> None:
    await peer.send(SETTINGS, OK)
    peer.half_close()
    await peer.read_on()


@behaviour(http2=True, hung_up=True)
async def http1_in_place_of_http2(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await peer.wait()


@behaviour(http2=True, hung_up=True)
async def garbage_after_settings(peer: Peer) -> None:
    await peer.send(SETTINGS)
    await peer.flood(os.urandom(65_536))


@behaviour(http2=True, path="/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
async def a_stream_of_small_pieces(peer: Peer) -> None:
    await peer.send(SETTINGS, OK)
    await peer.flood(frames.frame(frames.DATA, 0, 1, b"xy"))


# --- the process ---


async def serve(one: Behaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        if one.begin:
            await asyncio.sleep(0)
        elif one.http2:
            await until_headers(reader)
        else:
            await reader.readuntil(b"\r\n\r\n")
        await one.behave(Peer(reader, writer))
    writer.close()


async def until_headers(reader: asyncio.StreamReader) -> None:
    await reader.readexactly(len(frames.PREFACE))
    kind = frames.SETTINGS
    while kind != frames.HEADERS:
        high, low, kind, _, _ = frames.HEAD.unpack(await reader.readexactly(9))
        await reader.readexactly(high << 8 | low)


async def call_http1(one: Behaviour, port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
            % (one.path.encode(), len(one.body))
        )
        writer.write(one.body)
        return (await reader.readline()).decode().split(" ")[1]
    finally:
        writer.transport.abort()


async def call_http2(one: Behaviour, port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    fields = {":method": "POST", ":scheme": "http", ":path": one.path, ":authority": "x"}
    fields["content-type"] = "application/grpc"
    if one.path != "/a/B":
        fields["grpc-timeout"] = "1S"  # streams have no other end
    head = b"".join(frames.literal(name, value) for name, value in fields.items())
    try:
        most = frames.LARGEST_WINDOW
        settings = frames.settings({frames.INITIAL_WINDOW_SIZE: most})
        more = frames.window_update(0, most - frames.DEFAULT_WINDOW)
        writer.write(frames.PREFACE + settings + more + frames.frame(frames.HEADERS, 0x4, 1, head))
        high, low, _, _, _ = frames.HEAD.unpack(await reader.readexactly(9))
        await reader.readexactly(high << 8 | low)  # its settings allow a large frame
        writer.write(frames.frame(frames.DATA, 1, 1, one.body))
        return await outcome(reader)
    finally:
        writer.transport.abort()


async def outcome(reader: asyncio.StreamReader) -> str:
    """How a call over HTTP/2 ended: its gRPC status, or what took its place."""
    while True:
        high, low, kind, flags, number = frames.HEAD.unpack(await reader.readexactly(9))
        payload = await reader.readexactly(high << 8 | low)
        if kind == frames.RST_STREAM and number == 1:
            return "reset"
        if kind == frames.GOAWAY:
            return "goaway"
        if number == 1 and flags & frames.END_STREAM:
            _, _, status = payload.partition(frames.literal("grpc-status", "0")[:-2])
            return status[1 : 1 + status[0]].decode() if status else "no status"


class Players:
    """A behaviour's server and its callers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.over = False
        self.outcomes: list[tuple[str, float]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.AbstractServer | None = None

    async def begin(self, folder: Path, port: int) -> None:
        one = BEHAVIOURS[self.name]
        self._server = await asyncio.start_unix_server(
            lambda r, w: serve(one, r, w), folder / SOCKET
        )
        self._tasks = [asyncio.create_task(self._call(one, port)) for _ in range(CALLERS)]

    async def _call(self, one: Behaviour, port: int) -> None:
        while not self.over:
            begun, how = time.monotonic(), call_http2 if one.http2 else call_http1
            try:
                async with asyncio.timeout(LONGEST_S):
                    found = await how(one, port)
            except (OSError, EOFError, IndexError) as error:  # TimeoutError is an OSError
                found = type(error).__name__
            self.outcomes.append((found, time.monotonic() - begun))
            await asyncio.sleep(0.005)  # it is to be hostile, and not to take the processor

    async def end(self, *, at_once: bool) -> None:
        self.over = True
        for task in self._tasks if at_once else ():
            task.cancel()
        await asyncio.wait(self._tasks)
        assert self._server is not None
        self._server.close()
        print(json.dumps({"ended": self.name, "outcomes": self.outcomes}), flush=True)


async def main() -> None:
    """Follow orders until standard input ends."""
    os.nice(10)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: dict[str, Players] = {}
    ends: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        order: dict[str, Any] = json.loads(line)
        if "begin" in order:
            players = running[order["begin"]] = Players(order["begin"])
            await players.begin(Path(order["folder"]), order["port"])
            print(json.dumps({"begun": players.name}), flush=True)
        else:
            players = running.pop(order.get("end") or order["cut"])
            task = asyncio.create_task(players.end(at_once="cut" in order))
            ends.add(task)
            task.add_done_callback(ends.discard)


if __name__ == "__main__":
    asyncio.run(main())
