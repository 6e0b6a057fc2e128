"""What a peer may not do to a connection, byte by byte; and what it may do, however odd."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    PingAckReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from hpack import Encoder

from cloud_ml.net.budget import Budget
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.frames import frame, literal
from cloud_ml.net.http2.headers import KEPT_BYTES, Blocks
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Limits, Received
from cloud_ml.net.loop_iteration import LoopIteration

HEAD = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/echo"),
    (":authority", "here"),
    ("te", "trailers"),
]
OK = b"\x88"
TRAILERS = literal("grpc-status", "0")
SMALL = {"frame_bytes": 16_384, "window": 65_536, "streams": 4, "resets": 20, "body_bytes": 100_000}
SMALL |= {"pushed_bytes": 262_144}


class Loop:
    """LoopIteration end when the test says so."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.time = lambda: 0.0

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class Transport:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.out = b""
        self.closed = self.aborted = self.paused = self.half_closed = False

    def write(self, data: bytes) -> None:
        self.out += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.half_closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_protocol(self) -> None:
        """Nobody whom long bodies would be taken from."""

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Echo:
    """Answers a body with itself, at once or when the test says so.

    ``/parts`` is answered as it comes, ``/document`` as HTTP is: without trailers.
    """

    def __init__(self) -> None:
        self.hold = False
        self.held: list[Callable[[], None]] = []
        self.served: list[bytes] = []

    def understand(self, fields: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
        return dict(fields)

    def length(self, head: dict[bytes, bytes], begun: memoryview) -> int:
        return int.from_bytes(begun[1:5], "big") + 5

    def serve(
        self, connection: Answers, stream: int, head: dict[bytes, bytes], body: Received
    ) -> None:
        if head[b":path"] == b"/parts":
            connection.listen(stream, body)
            return
        self.served.append(bytes(body))
        answer = lambda: connection.answer(stream, OK, (len(body), (bytes(body),)), TRAILERS)  # noqa: E731
        if head[b":path"] == b"/document":
            answer = lambda: connection.respond(stream, OK, bytes(body))  # noqa: E731
        if self.hold:
            self.held.append(answer)
        else:
            answer()

    def sink(self, connection: Answers, stream: int, head: dict[bytes, bytes]) -> Any:
        return Parts(connection, stream) if head[b":path"] == b"/parts" else None


class Parts:
    """Sends back each piece at once."""

    def __init__(self, connection: Answers, stream: int) -> None:
        self.connection, self.stream = connection, stream
        connection.begin(stream, OK)

    def data(self, data: bytes, *, ended: bool, unread_bytes: int = 0) -> None:
        if data:
            self.connection.push(self.stream, data, unread_bytes)
        if ended:
            self.connection.finish(self.stream, TRAILERS)


class Peer:
    """A strict client: the ``h2`` library, or bytes by hand."""

    def __init__(self, **limits: Any) -> None:
        self.loop, self.transport, self.echo = Loop(), Transport(), Echo()
        made = Limits(
            too_large=lambda number: (
                frame(frames.HEADERS, 0x5, number, OK + literal("grpc-status", "8")),
            ),
            **(SMALL | limits),
        )
        iteration = LoopIteration(cast("asyncio.AbstractEventLoop", self.loop))
        self.connection = Http2Connection(self.echo, made, iteration)
        self.connection.connection_made(cast("asyncio.Transport", self.transport))
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()

    def gives(self, data: bytes = b"") -> list[Event]:
        """Send what the library has and these bytes; what the library makes of the answer."""
        self.connection.data_received(self.h2.data_to_send() + data)
        self.loop.turn()
        out, self.transport.out = self.transport.out, b""
        events = self.h2.receive_data(out)
        rest = self.h2.data_to_send()
        return events + (self.gives(rest) if rest and not self.transport.closed else [])

    def asks(
        self, number: int, body: bytes = b"hello", path: str = "/echo", *, end: bool = True
    ) -> None:
        self.h2.send_headers(number, [(k, path if k == ":path" else v) for k, v in HEAD])
        for at in range(0, len(body), 16_384):
            self.h2.send_data(
                number, body[at : at + 16_384], end_stream=end and at + 16_384 >= len(body)
            )

    def error_after(self, data: bytes) -> int | None:
        """Send bytes that the library would not; the code with which the connection was ended,
        if it was.
        """
        self.connection.data_received(data)
        self.loop.turn()
        out, self.transport.out = self.transport.out, b""
        while out:
            high, low, kind, _, _ = frames.HEAD.unpack_from(out)
            if kind == frames.GOAWAY:
                return int(frames.NUMBER.unpack_from(out, 13)[0])
            out = out[9 + (high << 8 | low) :]
        return None


def block(*fields: tuple[str, str]) -> bytes:
    return Encoder().encode(list(fields) or HEAD, huffman=False)


def settled(**limits: Any) -> Peer:
    peer = Peer(**limits)
    peer.gives()
    return peer


def request(number: int = 1, body: bytes = b"x") -> bytes:
    return frame(frames.HEADERS, frames.END_HEADERS, number, block()) + frame(
        frames.DATA, 1, number, body
    )


def bodies(events: list[Event]) -> dict[int, bytes]:
    made: dict[int, bytes] = {}
    for each in events:
        if isinstance(each, DataReceived):
            made[each.stream_id] = made.get(each.stream_id, b"") + each.data
    return made


def test_a_strict_client_is_content() -> None:
    peer = Peer()
    for number in (1, 3, 5):
        peer.asks(number, f"body {number}".encode())
    peer.h2.ping(b"12345678")
    events = peer.gives()
    assert bodies(events) == {1: b"body 1", 3: b"body 3", 5: b"body 5"}
    kinds = [type(each) for each in events if getattr(each, "stream_id", None) == 1]
    assert kinds == [ResponseReceived, DataReceived, TrailersReceived, StreamEnded]
    assert any(isinstance(each, PingAckReceived) for each in events)


def test_bytes_that_come_one_by_one_are_the_same_request() -> None:
    """A preface in pieces was once taken for frames."""
    peer = Peer()
    peer.asks(1)
    for byte in peer.h2.data_to_send():
        peer.connection.data_received(bytes([byte]))
    peer.loop.turn()
    assert bodies(peer.h2.receive_data(peer.transport.out)) == {1: b"hello"}


def test_large_bodies_go_within_the_windows_both_ways() -> None:
    peer = Peer(body_bytes=1 << 20)
    body, sent, got = bytes(range(256)) * 2000, 0, b""
    peer.h2.send_headers(1, HEAD)
    while sent < len(body):
        size = min(peer.h2.local_flow_control_window(1), 16_384, len(body) - sent)
        if size:
            peer.h2.send_data(1, body[sent : sent + size], end_stream=sent + size == len(body))
            sent += size
        for event in peer.gives():
            if isinstance(event, DataReceived):
                got += event.data
                peer.h2.acknowledge_received_data(event.flow_controlled_length, 1)
    while len(got) < len(body):
        news = [each for each in peer.gives() if isinstance(each, DataReceived)]
        assert news
        for event in news:
            got += event.data
            peer.h2.acknowledge_received_data(event.flow_controlled_length, 1)
    assert got == body


def test_padding_and_priority_are_passed_over() -> None:
    peer = settled()
    padded = bytes([3]) + bytes(5) + block() + bytes(3)
    flags = frames.END_HEADERS | frames.PADDED | frames.WITH_PRIORITY
    data = frame(frames.DATA, frames.PADDED | 1, 1, bytes([4]) + b"hello" + bytes(4))
    peer.connection.data_received(frame(frames.HEADERS, flags, 1, padded) + data)
    assert peer.echo.served == [b"hello"]


def test_a_head_in_pieces_is_one_head() -> None:
    peer = settled()
    whole = block()
    pieces = frame(frames.HEADERS, 1, 1, whole[:3]) + frame(frames.CONTINUATION, 0, 1, whole[3:9])
    peer.connection.data_received(
        pieces + frame(frames.CONTINUATION, frames.END_HEADERS, 1, whole[9:])
    )
    assert peer.echo.served == [b""]


WINDOW = frames.window_update
OPEN = frame(frames.HEADERS, frames.END_HEADERS, 1, block())
BEGUN = frame(frames.HEADERS, 1, 1)
PADDED_HEAD = frames.END_HEADERS | frames.PADDED
BOMB = (
    b"\x40\x01a\x7f\xa1\x1e" + bytes(4000) + b"\xbe" * 60
)  # a field of 4,000 bytes, and 60 references to it
PROTOCOL, FLOW, SIZE, CLOSED, CALM, COMPRESSION = (
    frames.PROTOCOL_ERROR, frames.FLOW_CONTROL_ERROR, frames.FRAME_SIZE_ERROR, frames.STREAM_CLOSED,
    frames.ENHANCE_YOUR_CALM, frames.COMPRESSION_ERROR,
)  # fmt: skip


@pytest.mark.parametrize(
    ("bytes_", "code"),
    [
        pytest.param(frame(frames.DATA, 0, 0, b"x"), PROTOCOL, id="data on the connection"),
        pytest.param(frame(frames.DATA, 0, 7, b"x"), PROTOCOL, id="data on a stream that was not "
                                                                  "opened"),
        pytest.param(request() + frame(frames.DATA, 0, 1, b"x"), CLOSED, id="data after the end"),
        pytest.param(OPEN + frame(frames.DATA, frames.PADDED, 1, b"\x05abc"), PROTOCOL, id="more padding than "
                                                                                           "data"),
        pytest.param(OPEN + frame(frames.DATA, frames.PADDED, 1), PROTOCOL, id="padding without a "
                                                                               "length"),
        pytest.param(frame(frames.HEADERS, PADDED_HEAD, 1, b"\xff" + block()), PROTOCOL, id="more padding than "
                                                                                            "head"),
        pytest.param(frame(frames.HEADERS, PADDED_HEAD, 1), SIZE, id="padded nothing"),
        pytest.param(frame(frames.HEADERS, 0x5, 2, block()), PROTOCOL, id="an even stream"),
        pytest.param(frame(frames.HEADERS, 0x5, 0, block()), PROTOCOL, id="a head on the "
                                                                          "connection"),
        pytest.param(request(5) + request(3), PROTOCOL, id="streams backwards"),
        pytest.param(request() + frame(frames.HEADERS, 0x5, 1, block()), PROTOCOL, id="a stream twice"),
        pytest.param(frame(frames.HEADERS, 1, 1, block()) + request(3), PROTOCOL, id="a head within a head"),
        pytest.param(frame(frames.CONTINUATION, 4, 1, b""), PROTOCOL, id="a continuation of "
                                                                         "nothing"),
        pytest.param(BEGUN + frame(frames.CONTINUATION, 4, 3, b""), PROTOCOL, id="a continuation "
                                                                                 "elsewhere"),
        pytest.param(BEGUN + frame(frames.CONTINUATION, 0, 1) * 17, CALM, id="empty continuations"),
        pytest.param(BEGUN + frame(frames.CONTINUATION, 0, 1, bytes(8000)) * 9, CALM, id="a head without end"),
        pytest.param(frame(frames.HEADERS, 0x5, 1, b"\xff\xff\xff\xff\xff\xff"), COMPRESSION, id="no header block"),
        pytest.param(frame(frames.HEADERS, 0x5, 1, b"\xbe"), COMPRESSION, id="an entry that is not in the "
                                                                             "table"),
        pytest.param(frame(frames.HEADERS, 0x5, 1, BOMB), COMPRESSION, id="a header bomb"),
        pytest.param(frame(frames.RST_STREAM, 0, 1, bytes(4)), PROTOCOL, id="a reset of nothing"),
        pytest.param(frame(frames.HEADERS, 0x5, 1, b"\x20" * 3 + block()), COMPRESSION, id="sizes of the table"),
        pytest.param(frame(frames.PRIORITY, 0, 0, bytes(5)), PROTOCOL, id="a priority of the "
                                                                          "connection"),
        pytest.param(frame(frames.PRIORITY, 0, 1, bytes(4)), SIZE, id="half a priority of nothing"),
        pytest.param(frame(frames.GOAWAY, 0, 1, bytes(8)), PROTOCOL, id="a farewell of a stream"),
        pytest.param(frame(frames.GOAWAY, 0, 0, bytes(7)), SIZE, id="half a farewell"),
        pytest.param(OPEN + WINDOW(2, 1), PROTOCOL, id="a window of an even stream"),
        pytest.param(request(3) + frame(frames.RST_STREAM, 0, 2, bytes(4)), PROTOCOL, id="a reset of an even "
                                                                                         "stream"),
        pytest.param(frame(frames.RST_STREAM, 0, 0, bytes(4)), PROTOCOL, id="a reset of the "
                                                                            "connection"),
        pytest.param(OPEN + frame(frames.RST_STREAM, 0, 1, bytes(3)), SIZE, id="half a reset"),
        pytest.param(WINDOW(0, 0), PROTOCOL, id="no more window"),
        pytest.param(WINDOW(0, 2**31 - 1) * 2, FLOW, id="too much window"),
        pytest.param(WINDOW(9, 1), PROTOCOL, id="a window of a stream that was not opened"),
        pytest.param(frame(frames.WINDOW_UPDATE, 0, 0, bytes(3)), SIZE, id="half a window"),
        pytest.param(frames.settings({frames.INITIAL_WINDOW_SIZE: 2**31}), FLOW, id="too large an initial "
                                                                                    "window"),
        pytest.param(frames.settings({frames.MAX_FRAME_SIZE: 100}), PROTOCOL, id="too small a frame"),
        pytest.param(frames.settings({frames.ENABLE_PUSH: 2}), PROTOCOL, id="a strange push"),
        pytest.param(frame(frames.SETTINGS, 0, 1, b""), PROTOCOL, id="settings of a stream"),
        pytest.param(frame(frames.SETTINGS, 0, 0, bytes(5)), SIZE, id="half a setting"),
        pytest.param(frame(frames.SETTINGS, 1, 0, bytes(6)), SIZE, id="an acknowledgement that says "
                                                                      "something"),
        pytest.param(frame(frames.PING, 0, 0, bytes(7)), SIZE, id="half a ping"),
        pytest.param(frame(frames.PING, 0, 1, bytes(8)), PROTOCOL, id="a ping of a stream"),
        pytest.param(frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), PROTOCOL, id="a client that pushes"),
        pytest.param(frame(frames.DATA, 0, 1, bytes(16_385)), SIZE, id="too large a frame"),
        pytest.param(frame(frames.PING, 0, 0, bytes(8)) * 40, CALM, id="a flood of pings"),
        pytest.param(frames.settings({}) * 40, CALM, id="a flood of settings"),
        pytest.param(frame(frames.PRIORITY, 0, 1, bytes(5)) * 40, CALM, id="a flood of priorities"),
        pytest.param(frame(99, 0, 1, b"?") * 40, CALM, id="a flood of unknown frames"),
        pytest.param(OPEN + frame(frames.DATA, 0, 1, b"") * 40, CALM, id="a flood of empty data"),
    ],
)  # fmt: skip
def test_whoever_breaks_the_protocol_is_told_and_left(bytes_: bytes, code: int) -> None:
    peer = settled()
    assert peer.error_after(bytes_) == code
    assert peer.transport.closed
    peer.connection.data_received(request(9))  # what was under way in the transport
    peer.connection.tick(0.0)
    assert b"x" not in peer.echo.served[1:]


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\n",
        frames.PREFACE + frame(frames.PING, 0, 0, bytes(8)),
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    ],
)
def test_who_does_not_begin_with_preface_and_settings_is_left(begin: bytes) -> None:
    peer = Peer()
    peer.connection.data_received(begin)
    assert peer.transport.closed


def test_rapid_resets_end_the_connection_and_honest_ones_do_not() -> None:
    peer = settled()
    peer.echo.hold = True
    flood = b"".join(request(n) + frame(frames.RST_STREAM, 0, n, bytes(4)) for n in range(1, 99, 2))
    assert peer.error_after(flood) == CALM
    peer = settled()
    for number in range(1, 400, 4):  # one is cancelled, one is answered
        peer.echo.hold = True
        peer.error_after(request(number) + frame(frames.RST_STREAM, 0, number, bytes(4)))
        peer.echo.hold = False
        peer.connection.data_received(request(number + 2))
    assert not peer.transport.closed


def test_a_calm_second_forgives() -> None:
    peer = settled()
    for _ in range(20):
        peer.gives(frame(frames.PING, 0, 0, bytes(8)) * 8)
        peer.connection.tick(0.0)
    assert not peer.transport.closed


@pytest.mark.parametrize(
    "fields",
    [
        [(":method", "POST"), (":path", "/"), (":scheme", "http"), ("Upper", "x")],
        [(":method", "POST"), (":path", "/"), (":scheme", "http"), ("connection", "close")],
        [(":method", "POST"), (":path", "/"), (":scheme", "http"), ("te", "gzip")],
        [(":method", "POST"), ("te", "trailers"), (":path", "/"), (":scheme", "http")],
        [(":method", "POST"), (":path", "/"), (":path", "/b"), (":scheme", "http")],
        [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":status", "200")],
        [(":method", "POST"), (":path", ""), (":scheme", "http")],
        [(":method", "POST"), (":scheme", "http")],
        [(":method", "POST"), (":path", "/"), (":scheme", "http"), ("a", "b\r\nc: d")],
    ],
)
def test_a_head_that_cannot_be_is_reset_and_others_go_on(fields: list[tuple[str, str]]) -> None:
    peer = settled()
    bad = frame(frames.HEADERS, frames.END_HEADERS, 1, block(*fields)) + frame(
        frames.DATA, 1, 1, b"x"
    )
    peer.connection.data_received(bad + request(3, b"good"))
    peer.loop.turn()
    assert frames.reset(1, PROTOCOL) in peer.transport.out
    assert peer.echo.served == [b"good"]


def trailers(*fields: tuple[str, str], flags: int = 0x5) -> bytes:
    return OPEN + frame(frames.HEADERS, flags, 1, Encoder().encode(list(fields), huffman=False))


def sized(
    length: str, *bodies: bytes, end: bytes = b"", more: tuple[tuple[str, str], ...] = ()
) -> bytes:
    """A request that tells its length, and its body in so many frames, the last of which ends
    it.
    """
    data = [
        frame(frames.DATA, 1 if place == len(bodies) and not end else 0, 1, each)
        for place, each in enumerate(bodies, 1)
    ]
    head = frame(
        frames.HEADERS,
        0x4 if data or end else 0x5,
        1,
        block(*HEAD, ("content-length", length), *more),
    )
    return head + b"".join(data) + end


EMPTY_TRAILERS = frame(frames.HEADERS, 0x5, 1, literal("a", "b"))


@pytest.mark.parametrize(
    ("bytes_", "code"),
    [
        pytest.param(OPEN + WINDOW(1, 0), PROTOCOL, id="no more window"),
        pytest.param(OPEN + WINDOW(1, 2**31 - 1), FLOW, id="too much window"),
        pytest.param(OPEN + frame(frames.PRIORITY, 0, 1, bytes(4)), SIZE, id="half a priority"),
        pytest.param(OPEN + frame(frames.PRIORITY, 0, 1, bytes(6)), SIZE, id="more than a priority"),
        pytest.param(trailers(("a", "b"), flags=0x4), PROTOCOL, id="trailers without end"),
        pytest.param(trailers(("A", "b")), PROTOCOL, id="upper case in trailers"),
        pytest.param(trailers(("connection", "close")), PROTOCOL, id="connection in trailers"),
        pytest.param(trailers((":path", "/")), PROTOCOL, id="a pseudo field in trailers"),
        pytest.param(trailers(*HEAD), PROTOCOL, id="a head as trailers"),
        pytest.param(trailers(("te", "gzip")), PROTOCOL, id="te in trailers"),
        pytest.param(sized("5"), PROTOCOL, id="a length and no body"),
        pytest.param(sized("5", b"1234"), PROTOCOL, id="shorter than said"),
        pytest.param(sized("5", b"123456"), PROTOCOL, id="longer than said"),
        pytest.param(sized("5", b"123", b"456"), PROTOCOL, id="longer than said, in two"),
        pytest.param(sized("5", b"1234", end=EMPTY_TRAILERS), PROTOCOL, id="shorter than said, with "
                                                                           "trailers"),
        pytest.param(sized("5", end=EMPTY_TRAILERS), PROTOCOL, id="a length, no body and trailers"),
        pytest.param(sized("+5", b"12345"), PROTOCOL, id="a length that is no number"),
        pytest.param(sized("5, 5", b"12345"), PROTOCOL, id="a list of lengths"),
        pytest.param(sized("5", b"12345", more=(("content-length", "6"),)), PROTOCOL, id="two lengths"),
    ],
)  # fmt: skip
def test_a_fault_of_a_stream_costs_that_stream_and_not_the_connection(
    bytes_: bytes, code: int
) -> None:
    peer = settled()
    assert peer.error_after(bytes_ + frame(frames.WINDOW_UPDATE, 0, 1, b"\0\0\0\1")) is None
    peer = settled()
    peer.connection.data_received(bytes_ + request(3, b"good"))
    peer.loop.turn()
    assert frames.reset(1, code) in peer.transport.out
    assert peer.echo.served == [b"good"]
    assert not peer.transport.closed
    peer.connection.data_received(request(5, b"and on"))
    assert peer.echo.served == [b"good", b"and on"]


def test_a_head_on_a_stream_whose_request_is_whole_costs_that_stream() -> None:
    peer = settled()
    peer.echo.hold = True
    peer.connection.data_received(request() + frame(frames.HEADERS, 0x5, 1, literal("a", "b")))
    peer.loop.turn()
    assert frames.reset(1, CLOSED) in peer.transport.out
    assert not peer.transport.closed


@pytest.mark.parametrize(
    "bytes_",
    [
        sized("0"), sized("5", b"12345"), sized("5", b"12", b"345"), sized("5", b"12345", end=EMPTY_TRAILERS),
        sized("0", end=EMPTY_TRAILERS), sized("5", b"12345", more=(("content-length", "5"),)),
        sized("40000", *[bytes(10_000)] * 4), sized("2", b"", b"ab", b""),
    ],
    ids=["none", "one frame", "two frames", "trailers", "none and trailers", "told twice", "long", "empty frames"],
)  # fmt: skip
def test_a_body_of_the_length_that_was_told_is_taken(bytes_: bytes) -> None:
    peer = settled()
    peer.connection.data_received(bytes_ + request(3, b"good"))
    assert len(peer.echo.served) == 2
    assert peer.connection._requests._lengths == {}


def test_the_length_of_a_body_that_goes_on_as_it_comes_is_looked_at_in_the_end() -> None:
    for length, fits in (("7", True), ("8", False), ("6", False)):
        peer = settled()
        fields = [(k, "/parts" if k == ":path" else v) for k, v in HEAD]
        head = frame(frames.HEADERS, 0x4, 1, block(*fields, ("content-length", length)))
        data = b"".join(
            frame(frames.DATA, ended, 1, each)
            for ended, each in ((0, b"abc"), (0, b"de"), (1, b"fg"))
        )
        peer.connection.data_received(head + data)
        peer.loop.turn()
        assert (frames.reset(1, PROTOCOL) in peer.transport.out) is not fits
        assert peer.connection._requests._lengths == {}


LONG_FIELD = literal("a", "x" * 20_000)
KEPT_FIELD = b"\x40\x05grown\x03yes"  # goes to the table, where the next head finds it


@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize("ends", [True, False])
def test_an_oversized_head_costs_its_own_request_and_the_table_follows(
    pieces: int, *, ends: bool
) -> None:
    peer = settled(frame_bytes=65_536)
    whole = block() + KEPT_FIELD + LONG_FIELD
    step = -(-len(whole) // pieces)
    parts = [whole[at : at + step] for at in range(0, len(whole), step)]
    kinds = [frames.HEADERS] + [frames.CONTINUATION] * (pieces - 1)
    head = b"".join(
        frame(kind, (0x4 if place == pieces else 0) | (ends and place == 1), 1, part)
        for place, (kind, part) in enumerate(zip(kinds, parts, strict=True), 1)
    )
    data = b"" if ends else frame(frames.DATA, 1, 1, b"never served")
    later = frame(frames.HEADERS, 0x5, 3, block() + b"\xbe")
    peer.h2.send_headers(1, HEAD, end_stream=ends)  # the library has to know of the stream
    peer.h2.data_to_send()
    peer.connection.data_received(head + data)
    peer.loop.turn()
    events = peer.h2.receive_data(peer.transport.out)
    answer = next(dict(each.headers) for each in events if isinstance(each, ResponseReceived))
    assert (answer[":status"], answer["grpc-status"]) == ("431", "8")
    assert any(isinstance(each, StreamReset) for each in events) is not ends
    peer.connection.data_received(later)
    assert peer.echo.served == [b""]
    assert not peer.transport.closed


def test_a_flood_of_oversized_heads_ends_the_connection() -> None:
    peer = settled(resets=100, frame_bytes=65_536)
    head = block() + LONG_FIELD
    assert (
        peer.error_after(
            b"".join(frame(frames.HEADERS, 0x5, number, head) for number in range(1, 13, 2))
        )
        is None
    )
    assert peer.error_after(frame(frames.HEADERS, 0x5, 13, head)) == CALM


def test_empty_continuations_are_frames_like_others_up_to_a_bound() -> None:
    peer = settled()
    whole = block()
    empty = frame(frames.CONTINUATION, 0, 1)
    pieces = (
        frame(frames.HEADERS, 1, 1)
        + empty * 3
        + frame(frames.CONTINUATION, 0, 1, whole)
        + empty * 3
    )
    peer.connection.data_received(pieces + frame(frames.CONTINUATION, frames.END_HEADERS, 1))
    assert peer.echo.served == [b""]


def test_what_blocks_name_of_the_table_again_and_again_is_bounded() -> None:
    """256 blocks of some bytes kept four megabytes of fields."""
    table = block() + b"\x40\x01a\x7f\xa1\x1e" + b"y" * 4_000
    blocks: Blocks[list[tuple[bytes, bytes]]] = Blocks(lambda fields: fields, 16_384)
    blocks.read(table)
    for number in range(500):
        blocks.read(b"\xbe" * 3 + literal("n", str(number)))
        assert (
            sum(len(value) for fields in blocks._cache.values() for _, value in fields)
            <= KEPT_BYTES
        )
    last = b"\xbe" * 3 + literal("n", "499")
    assert blocks.known(last) == blocks.read(last)


SAME = b"".join(
    literal(*each) for each in HEAD
)  # changes no table, so it is looked up when it comes again


def again(number: int, body: bytes = b"x") -> bytes:
    return frame(frames.HEADERS, frames.END_HEADERS, number, SAME) + frame(
        frames.DATA, 1, number, body
    )


@pytest.mark.parametrize(
    ("number", "code"), [(2, PROTOCOL), (0, PROTOCOL), (1, PROTOCOL), (5, None)]
)
def test_a_head_that_is_known_is_judged_as_one_that_is_not(number: int, code: int | None) -> None:
    peer = settled()
    assert peer.error_after(again(1) + again(3)) is None
    assert peer.error_after(again(number, b"y")) == code
    assert peer.echo.served == [b"x", b"x"] + [b"y"] * (code is None)


def test_the_bit_beside_the_number_of_a_stream_means_nothing() -> None:
    peer = settled()
    reserved = frame(frames.HEADERS, frames.END_HEADERS, 5 | 1 << 31, SAME) + frame(
        frames.DATA, 1, 5 | 1 << 31, b"y"
    )
    assert peer.error_after(again(1) + reserved) is None
    assert peer.echo.served == [b"x", b"y"]


def test_known_heads_open_no_more_streams_than_others() -> None:
    peer = settled()
    peer.echo.hold = True
    for number in range(1, 20, 2):
        assert peer.error_after(again(number)) is None
    assert len(peer.echo.served) == SMALL["streams"]


def test_one_stream_too_many_is_refused_and_its_data_passed_over() -> None:
    peer = settled()
    peer.echo.hold = True
    for number in (1, 3, 5, 7):
        peer.asks(number)
    peer.gives()
    peer.connection.data_received(
        frame(frames.HEADERS, 4, 9, block()) + frame(frames.DATA, 1, 9, b"x")
    )
    peer.loop.turn()
    assert peer.transport.out == frames.reset(9, frames.REFUSED_STREAM)
    assert peer.echo.served == [b"hello"] * 4


def test_answers_that_wait_for_their_window_count_as_streams() -> None:
    """With a window of nothing, a peer could once have as many answers kept as it liked."""
    peer = settled()
    peer.connection.data_received(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
    peer.connection.data_received(b"".join(request(number) for number in range(1, 20, 2)))
    assert len(peer.echo.served) == 4


@pytest.mark.parametrize("most", [0, 3])
def test_empty_pieces_of_a_head_are_bounded_by_their_setting(most: int) -> None:
    empty = frame(frames.CONTINUATION, 0, 1)
    peer = settled(empty_frames=most)
    assert peer.error_after(frame(frames.HEADERS, 0, 1, block()) + empty * most) is None
    assert peer.error_after(empty) == frames.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(("kept_bytes", "expected"), [(131_072, 1), (0, 3)])
def test_heads_are_recognised_within_their_setting(kept_bytes: int, expected: int) -> None:
    peer, reads = settled(kept_head_bytes=kept_bytes), []
    understand = peer.echo.understand
    peer.echo.understand = lambda fields: reads.append(1) or understand(fields)  # type: ignore[func-returns-value, method-assign]
    for number in (1, 3, 5):
        head = b"".join(literal(*each) for each in HEAD)
        peer.error_after(
            frame(frames.HEADERS, frames.END_HEADERS, number, head)
            + frame(frames.DATA, 1, number, b"x")
        )
    assert (len(reads), len(peer.echo.served)) == (expected, 3)


def test_an_unread_answer_is_given_up_after_a_while() -> None:
    peer = settled()
    peer.connection.data_received(
        frames.settings({frames.INITIAL_WINDOW_SIZE: 0}) + request(1, b"hello")
    )
    for _ in range(61):
        peer.connection.tick(0.0)
    assert not peer.transport.closed
    peer.connection.data_received(WINDOW(1, 1))  # one byte was taken, and nothing after it
    for _ in range(63):
        peer.connection.tick(0.0)
    assert peer.transport.closed


def test_an_answer_that_makes_no_progress_is_given_up_though_others_do() -> None:
    peer = settled()
    peer.connection.data_received(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
    peer.connection.data_received(request(1, b"hello") + request(3, bytes(100)))
    for _ in range(62):
        peer.connection.data_received(WINDOW(3, 1))
        peer.connection.tick(0.0)
        peer.loop.turn()
    assert peer.transport.out.endswith(frames.reset(1, frames.ENHANCE_YOUR_CALM))
    assert not peer.transport.closed


def test_who_never_reads_is_not_read_and_then_left() -> None:
    peer = settled()
    peer.connection.pause_writing()
    assert peer.transport.paused
    for _ in range(62):
        peer.connection.tick(0.0)
    assert peer.transport.aborted


def test_too_large_bodies_are_refused_and_the_rest_of_them_passed_over() -> None:
    peer = settled()
    big = frame(frames.DATA, 0, 1, bytes(16_000))
    peer.connection.data_received(OPEN + big * 9 + request(3, b"after"))
    assert peer.echo.served == [b"after"]
    assert not peer.transport.closed


@pytest.mark.parametrize("kind", [frames.HEADERS, frames.SETTINGS, 0x42])
@pytest.mark.parametrize("cut", [9, 70_009])
def test_what_is_no_data_is_not_long_however_it_comes(kind: int, cut: int) -> None:
    peer = settled(frame_bytes=1 << 20)
    sent = frame(kind, 0, 0 if kind == frames.SETTINGS else 1, bytes(70_000))
    assert peer.error_after(sent[:cut]) == CALM
    assert peer.transport.closed


def test_unfinished_bodies_of_all_connections_share_a_budget() -> None:
    budget = Budget(most=40_000)
    peers = [Peer(budget=budget) for _ in range(3)]
    part = OPEN + frame(frames.DATA, 0, 1, bytes(16_000))
    for peer in peers:
        peer.gives()
        peer.connection.data_received(part)
    assert budget.held == 32_000
    peers[0].connection.connection_lost(None)
    peers[1].connection.data_received(frame(frames.RST_STREAM, 0, 1, bytes(4)))
    assert budget.held == 0


@pytest.mark.parametrize("path", ["/echo", "/document"])
@pytest.mark.parametrize("size", [10_000, 30_000])
def test_bodies_count_in_the_budget_until_they_are_answered(path: str, size: int) -> None:
    budget = Budget()
    peer = settled(budget=budget)
    peer.echo.hold = True
    for number in (1, 3):
        peer.asks(number, bytes(size), path)
        peer.gives()
    assert budget.held == 2 * size
    for answer in peer.echo.held:
        answer()
    assert budget.held == 0


@pytest.mark.parametrize("length", [0, 10, 3_000, 2**32 - 1], ids=str)
def test_how_long_a_body_says_it_will_be_changes_nothing_but_where_it_is_put(length: int) -> None:
    budget = Budget()
    peer = settled(budget=budget)
    body = b"\0" + length.to_bytes(4, "big") + bytes(range(256)) * 10
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    peer.connection.data_received(OPEN)
    for piece in pieces[:-1]:
        peer.connection.data_received(frame(frames.DATA, 0, 1, piece))
        assert budget.held <= 64 * len(pieces[0]) + 2 * len(body)
    peer.connection.data_received(frame(frames.DATA, frames.END_STREAM, 1, pieces[-1]))
    assert peer.echo.served == [body]
    assert budget.held == 0


def test_more_data_than_the_window_allows_ends_the_connection() -> None:
    peer = Peer(body_bytes=1 << 30, window=65_536)
    peer.gives()
    peer.connection._limits.budget.most = 1 << 40
    stream = peer.connection._requests.streams
    peer.connection.data_received(OPEN)
    stream[1].unacknowledged = 60_000  # what a peer that saw no update may not exceed
    peer.connection.data_received(frame(frames.DATA, 0, 1, bytes(16_000)))
    assert peer.transport.closed


@pytest.mark.parametrize(
    ("bytes_", "seconds"),
    [
        (b"", 31),
        (frame(frames.HEADERS, 1, 1, b""), 31),
        (frame(frames.HEADERS, 1, 1, bytes(100))[:50], 31),
    ],
)
def test_a_head_that_does_not_come_to_its_end_is_cut(bytes_: bytes, seconds: int) -> None:
    peer = settled() if bytes_ else Peer()
    peer.connection.data_received(bytes_ or frames.PREFACE[:10])
    for _ in range(seconds - 1):
        peer.connection.tick(0.0)
    assert not peer.transport.closed
    peer.connection.tick(0.0)
    assert peer.transport.closed


def test_a_body_that_does_not_come_is_given_up_and_the_connection_stays() -> None:
    peer = settled()
    peer.connection.data_received(OPEN + frame(frames.DATA, 0, 1, b"drip"))
    for _ in range(121):
        peer.connection.tick(0.0)
    peer.loop.turn()
    assert peer.transport.out.endswith(frames.reset(1, frames.CANCEL))
    peer.connection.data_received(frame(frames.DATA, 1, 1, b"late") + request(3))
    assert (peer.echo.served, peer.transport.closed) == ([b"x"], False)


def test_a_connection_that_asks_nothing_is_ended_in_order() -> None:
    peer = settled()
    for _ in range(3_601):
        peer.connection.tick(0.0)
    peer.loop.turn()
    assert peer.transport.half_closed
    assert frames.goaway(0, frames.NO_ERROR) in peer.transport.out


def test_whoever_leaves_gets_what_was_under_way() -> None:
    peer = settled()
    peer.echo.hold = True
    peer.asks(1)
    peer.gives()
    peer.connection.leave()
    peer.loop.turn()
    assert not peer.transport.half_closed
    peer.echo.held[0]()
    peer.loop.turn()
    assert peer.transport.half_closed
    assert b"hello" in peer.transport.out


def test_what_is_on_its_way_to_who_leaves_is_thrown_away_for_two_seconds() -> None:
    """So the kernel answers it with no RST, which could destroy GOAWAY. GOAWAY says that it was not
    served.
    """
    peer = settled()
    peer.connection.leave()
    peer.loop.turn()
    assert peer.transport.out.endswith(frames.goaway(0, frames.NO_ERROR))
    written = len(peer.transport.out)
    peer.connection.data_received(request(1) + frame(frames.PING, 0, 0, bytes(8)))
    peer.connection.data_received(b"no frame at all")
    for _ in range(2):
        peer.connection.tick(0.0)
    peer.loop.turn()
    assert (peer.echo.served, len(peer.transport.out)) == ([], written)
    assert not peer.transport.closed
    peer.connection.tick(0.0)
    assert peer.transport.closed
    assert not peer.transport.aborted


def test_a_flood_to_who_leaves_waits_for_its_share_of_a_turn() -> None:
    peer = settled()
    peer.connection.leave()
    peer.loop.turn()
    peer.connection.data_received(bytes(2 << 20))
    assert peer.transport.paused
    peer.loop.turn()
    assert not peer.transport.paused
    peer.connection.data_received(request(1))
    peer.loop.turn()
    assert peer.echo.served == []


def test_an_idle_connection_gives_its_place_at_once() -> None:
    peer = settled()
    assert peer.connection.give_way()
    assert peer.transport.closed


def test_answers_in_pieces_go_and_come_as_they_are_made() -> None:
    peer = settled()
    peer.asks(1, b"one", "/parts", end=False)
    assert bodies(peer.gives()) == {1: b"one"}
    peer.h2.send_data(1, b"two", end_stream=True)
    events = peer.gives()
    assert bodies(events) == {1: b"two"}
    assert isinstance(events[-1], StreamEnded)
    peer.asks(3, b"at once", "/parts")
    assert bodies(peer.gives()) == {3: b"at once"}


def test_what_sinks_keep_of_messages_counts_in_the_same_budget_until_the_stream_is_over() -> None:
    budget = Budget(most=1_000)
    peers = [Peer(budget=budget) for _ in range(2)]
    for peer in peers:
        peer.gives()
        peer.asks(1, b"one", "/parts", end=False)
        peer.asks(3, b"two", "/parts", end=False)
        peer.gives()
    first, second = (peer.connection._requests for peer in peers)
    assert first.hold(1, 600)
    assert first.hold(1, 500)
    assert first.hold(3, 100)
    assert not second.hold(1, 401)
    assert budget.held == 1_001
    assert second.hold(1, 0)
    peers[0].connection.data_received(frame(frames.RST_STREAM, 0, 1, bytes(4)))
    assert budget.held == 100
    assert first.hold(1, 9_999), "it is over, and keeps nothing"
    assert budget.held == 100
    first.finish(3, TRAILERS)
    assert budget.held == 0
    assert second.hold(3, 700)
    peers[1].connection.connection_lost(None)
    assert budget.held == 0


def test_a_stream_may_have_a_large_bound_of_its_own_and_never_more_than_the_connection() -> None:
    peer = settled(pushed_bytes=1_000, unread_bytes=200_000)
    peer.h2.update_settings({4: 5})
    peer.gives()
    for number in (1, 3):
        peer.asks(number, b"one", "/parts", end=False)
    peer.gives()
    parts: Any = [peer.connection._requests.streams[number].sink for number in (1, 3)]
    parts[0].data(bytes(90_000), ended=False, unread_bytes=100_000)
    parts[1].data(bytes(90_000), ended=False, unread_bytes=100_000)
    assert not [each for each in peer.gives() if isinstance(each, StreamReset)]
    parts[0].data(
        bytes(50_000), ended=False, unread_bytes=100_000
    )  # a message may come to what was allowed before
    assert not [each for each in peer.gives() if isinstance(each, StreamReset)]
    parts[1].data(bytes(10_000), ended=False, unread_bytes=100_000)
    assert [each.stream_id for each in peer.gives() if isinstance(each, StreamReset)] == [3]
    parts[0].data(bytes(2_000), ended=False)
    assert [each.stream_id for each in peer.gives() if isinstance(each, StreamReset)] == [1]
    assert not peer.transport.closed


def test_pieces_wait_for_the_window_and_too_many_of_them_do_not() -> None:
    peer = settled()
    peer.h2.update_settings({4: 5})
    peer.gives()
    peer.asks(1, b"one two", "/parts", end=False)
    assert bodies(peer.gives()) == {1: b"one t"}
    peer.h2.increment_flow_control_window(100, 1)
    assert bodies(peer.gives()) == {1: b"wo"}
    parts = peer.connection._requests.streams[1].sink
    assert parts is not None
    events: list[Event] = []
    for _ in range(20):
        parts.data(bytes(16_384), ended=False)
        events += peer.gives()
    reset = [each for each in events if isinstance(each, StreamReset)]
    assert [each.error_code for each in reset] == [CALM]
    assert not peer.transport.closed
