"""Callers that flood a port, as a process: ``python -m support.hostile_callers NAME PORT``. It ends
when it is killed.

Every flood has ``CONNECTIONS`` connections. None sends a token. A connection reads and drops the
answers, since a server that waits with reading would be no target. It prints ``begun`` after its
first block.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cloud_ml.net.http2 import frames

CONNECTIONS = 8
BLOCK = 65_536
"""Bytes that are sent at once."""
RECONNECT_S = 0.02
INT = struct.Struct(">L")
LAST_STREAM = 0x7FFFFFFF
Blocks = Iterator[bytes]


@dataclass(frozen=True)
class Flood:
    """What a connection sends: its beginning, and then what comes from ``blocks`` again and
    again.
    """

    begin: bytes
    blocks: Callable[[], Blocks]


FLOODS: dict[str, Flood] = {}
BULK = {"large_bodies", "large_bodies_over_http2", "large_frames"}
"""Floods of bytes and not of frames."""


def register(begin: bytes = b"") -> Callable[[Callable[[], Blocks]], Callable[[], Blocks]]:
    """Add a flood."""

    def add(blocks: Callable[[], Blocks]) -> Callable[[], Blocks]:
        FLOODS[blocks.__name__] = Flood(begin, blocks)
        return blocks

    return add


def again(part: bytes) -> Blocks:
    """The same for ever."""
    many = part * max(1, BLOCK // len(part))
    while True:
        yield many


def on_streams(make: Callable[[int], bytes], first: int = 1) -> Blocks:
    """The same on one stream after the other, until there are no more numbers."""
    block = bytearray()
    for number in range(first, LAST_STREAM, 2):
        block += make(number)
        if len(block) >= BLOCK:
            yield bytes(block)
            block.clear()


# --- HTTP/2 ---


def head(path: str = "/a/B", method: str = "POST", **fields: str) -> bytes:
    """A block of headers that changes no table."""
    fields_sent = {":method": method, ":scheme": "http", ":path": path, ":authority": "x", **fields}
    return b"".join(
        frames.literal(name.replace("_", "-"), value) for name, value in fields_sent.items()
    )


GRPC = head(content_type="application/grpc")
REST = head("/v1/models/m", "GET")
HELLO = frames.PREFACE + frames.settings({}) + frames.frame(frames.SETTINGS, frames.ACK, 0)
OPEN = HELLO + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, GRPC)
SMALL_WINDOWS = frames.settings({frames.INITIAL_WINDOW_SIZE: 0})
UNREAD = (
    frames.PREFACE
    + SMALL_WINDOWS
    + b"".join(
        frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, number, REST)
        for number in range(1, 1_801, 2)
    )
)
"""Answers with a body for which their streams have no window."""


@register(HELLO)
def window_updates() -> Blocks:
    return again(frames.window_update(0, 1))


@register(OPEN)
def window_updates_of_a_stream() -> Blocks:
    return again(frames.window_update(1, 1))


@register(UNREAD)
def window_updates_before_unread_answers() -> Blocks:
    return again(frames.window_update(0, 1))


@register(UNREAD)
def settings_before_unread_answers() -> Blocks:
    return again(SMALL_WINDOWS)


@register(UNREAD)
def answers_byte_by_byte() -> Blocks:
    return again(b"".join(frames.window_update(number, 1) for number in range(1, 1_801, 2)))


@register(HELLO)
def pings() -> Blocks:
    return again(frames.frame(frames.PING, 0, 0, bytes(8)))


@register(HELLO)
def settings() -> Blocks:
    return again(frames.settings({}))


@register(HELLO)
def long_settings() -> Blocks:
    return again(frames.frame(frames.SETTINGS, 0, 0, frames.SETTING.pack(99, 1) * 10_000))


@register(HELLO)
def priorities() -> Blocks:
    return again(frames.frame(frames.PRIORITY, 0, 3, bytes(5)))


@register(HELLO)
def unknown_frames() -> Blocks:
    return again(frames.frame(99, 0, 0, b""))


@register(OPEN)
def resets_of_a_stream() -> Blocks:
    return again(frames.reset(1, frames.CANCEL))


@register(HELLO)
def rapid_resets() -> Blocks:
    return on_streams(
        lambda number: (
            frames.frame(frames.HEADERS, frames.END_HEADERS, number, GRPC)
            + frames.reset(number, frames.CANCEL)
        )
    )


@register(HELLO)
def requests() -> Blocks:
    ends = frames.END_HEADERS | frames.END_STREAM
    return on_streams(lambda number: frames.frame(frames.HEADERS, ends, number, GRPC))


@register(HELLO)
def requests_with_small_bodies() -> Blocks:
    return on_streams(
        lambda number: (
            frames.frame(frames.HEADERS, frames.END_HEADERS, number, GRPC)
            + frames.frame(frames.DATA, frames.END_STREAM, number, b"12345")
        )
    )


@register(HELLO)
def requests_with_new_heads() -> Blocks:
    ends = frames.END_HEADERS | frames.END_STREAM
    return on_streams(
        lambda number: frames.frame(
            frames.HEADERS, ends, number, GRPC + frames.literal("x", f"{number}")
        )
    )


@register(OPEN)
def empty_data() -> Blocks:
    return again(frames.frame(frames.DATA, 0, 1))


@register(OPEN)
def padded_data() -> Blocks:
    return again(frames.frame(frames.DATA, frames.PADDED, 1, b"\0"))


@register(OPEN)
def one_byte_of_data() -> Blocks:
    return again(frames.frame(frames.DATA, 0, 1, b"x"))


@register(OPEN + frames.frame(frames.DATA, 0, 1, b"\0" + INT.pack(2 << 20) + bytes(200_000)))
def one_byte_of_a_long_body() -> Blocks:
    return again(frames.frame(frames.DATA, 0, 1, b"x"))


@register(HELLO)
def continuations() -> Blocks:
    pieces = frames.frame(frames.CONTINUATION, 0, 1, b"x") * 60_000
    while True:
        yield frames.frame(frames.HEADERS, 0, 1, b"")
        yield pieces


# --- HTTP/1.1 ---

GET = b"GET /v1/models/m HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@register()
def pipelined_requests() -> Blocks:
    return again(GET)


@register()
def pipelined_requests_with_new_heads() -> Blocks:
    return on_streams(lambda number: b"GET /v1/models/%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)


@register(CHUNKED)
def one_byte_chunks() -> Blocks:
    return again(b"1\r\nx\r\n")


@register()
def empty_lines() -> Blocks:
    return again(b"\r\n")


@register()
def pipelined_chunked_requests() -> Blocks:
    return again(CHUNKED + b"1\r\nx\r\n0\r\n\r\n")


@register(b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
def bytes_of_a_request_that_is_refused() -> Blocks:
    return again(bytes(BLOCK))


@register()
def large_bodies() -> Blocks:
    return again(
        b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n"
        + bytes(8 << 20)
    )


@register(HELLO)
def large_bodies_over_http2() -> Blocks:
    body = b"\0" + INT.pack(8 << 20) + bytes(8 << 20)
    return on_streams(
        lambda number: (
            frames.frame(frames.HEADERS, frames.END_HEADERS, number, GRPC)
            + b"".join(
                frames.frame(frames.DATA, 0, number, body[at : at + 16_384])
                for at in range(0, len(body), 16_384)
            )
            + frames.frame(frames.DATA, frames.END_STREAM, number)
        )
    )


@register(HELLO)
def large_frames() -> Blocks:
    body = b"\0" + INT.pack(8 << 20) + bytes((1 << 20) - 5)
    for number in range(1, LAST_STREAM, 2):
        yield frames.frame(frames.HEADERS, frames.END_HEADERS, number, GRPC)
        for _ in range(8):
            yield frames.frame(frames.DATA, 0, number, body)
        yield frames.frame(frames.DATA, frames.END_STREAM, number)


# --- the process ---


async def flood(one: Flood, port: int, begun: asyncio.Event) -> None:
    """One connection after the other."""
    while True:
        with contextlib.suppress(OSError):
            await _connection(one, port, begun)
        await asyncio.sleep(RECONNECT_S)


async def _connection(one: Flood, port: int, begun: asyncio.Event) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(_drop(reader))
    try:
        writer.write(one.begin)
        for block in one.blocks():
            writer.write(block)
            await writer.drain()
            begun.set()
            if reading.done():
                return
    finally:
        reading.cancel()
        writer.transport.abort()


async def _drop(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 20):
            pass


async def main(name: str, port: int) -> None:
    """Flood for ever."""
    begun = asyncio.Event()
    tasks = [asyncio.create_task(flood(FLOODS[name], port, begun)) for _ in range(CONNECTIONS)]
    await begun.wait()
    print("begun", flush=True)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
