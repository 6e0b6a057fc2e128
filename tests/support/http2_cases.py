"""What a server of HTTP/2 does with the frames of a client: a table of cases, each with its section
of the RFC.

h2spec asks for the same; the cases are written anew from RFC 9113 and RFC 7541. Where the RFC
leaves a choice (a fault of a stream may end the connection), they ask for what costs other calls
least.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hpack import Encoder

from support import http2_peer as h2
from support.http2_peer import Fields, Peer, frame, number, settings

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/grpc.health.v1.Health/Check"),
    (":authority", "here"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]
MESSAGE = bytes(5)
"""An empty message of gRPC, which asks after the health of the whole server."""
WHOLE = h2.END_HEADERS | h2.END_STREAM
LARGEST_WINDOW = 2**31 - 1

Case = Callable[[Peer], None]
Expectation = Callable[[Peer], None]


class Row(NamedTuple):
    """What is sent after the settings, and what has to come of it."""

    section: str
    title: str
    sent: bytes
    expected: Expectation

    @property
    def name(self) -> str:
        return f"{self.section}: {self.title}"

    def run(self, peer: Peer) -> None:
        peer.begin()
        peer.send(self.sent)
        self.expected(peer)


def block(fields: Fields = REQUEST, *, huffman: bool = True) -> bytes:
    """A block of headers that needs no entry of the table that others made."""
    return Encoder().encode(list(fields), huffman=huffman)


def head(stream: int = 1, flags: int = h2.END_HEADERS, fields: Fields = REQUEST) -> bytes:
    """HEADERS."""
    return frame(h2.HEADERS, flags, stream, block(fields))


def data(stream: int = 1, flags: int = h2.END_STREAM, payload: bytes = MESSAGE) -> bytes:
    """DATA."""
    return frame(h2.DATA, flags, stream, payload)


def request(stream: int = 1) -> bytes:
    """A whole request."""
    return head(stream) + data(stream)


def without(name: str) -> Fields:
    """A request that lacks a field."""
    return [each for each in REQUEST if each[0] != name]


def changed(name: str, value: str) -> Fields:
    """A request with another value of a field."""
    return [(each[0], value if each[0] == name else each[1]) for each in REQUEST]


def ends(*codes: int) -> Expectation:
    """A connection error."""
    return lambda peer: peer.connection_error(*codes)


def resets(*codes: int, stream: int = 1) -> Expectation:
    """A stream error."""
    return lambda peer: peer.stream_error(stream, *codes)


def answers(stream: int = 1) -> Expectation:
    """The request is answered, and the connection goes on."""

    def look(peer: Peer) -> None:
        fields, _ = peer.answered(stream)
        assert (fields[":status"], fields["grpc-status"]) == ("200", "0"), fields
        peer.alive()

    return look


def lives(peer: Peer) -> None:
    """Nothing happens, and a request is answered afterwards."""
    peer.alive()
    peer.send(request(101))
    answers(101)(peer)


def acknowledges(peer: Peer) -> None:
    """A ping comes back with its payload."""
    ack = peer.until(h2.PING)
    assert (ack.flags, ack.stream, ack.payload) == (h2.ACK, 0, b"12345678")


PRIORITY = number(0) + b"\x10"
BEGUN = frame(h2.HEADERS, h2.END_STREAM, 1, block()[:5])
PADDED_HEAD = frame(h2.HEADERS, h2.END_HEADERS | h2.PADDED, 1, b"\x05" + block() + bytes(5))
FULL_HEAD = frame(
    h2.HEADERS,
    h2.END_HEADERS | h2.PADDED | h2.WITH_PRIORITY,
    1,
    b"\x05" + PRIORITY + block() + bytes(5),
)
TRAILER = head(flags=WHOLE, fields=[("a", "b")])
STATIC = b"\x83\x86\x04\x1c/grpc.health.v1.Health/Check\x0f\x10\x10application/grpc"
"""Names of the static table with literal values: RFC 7541, section 6.2.2."""


def hpack(more: bytes, before: bytes = b"") -> bytes:
    """A request with more in its block of headers."""
    return frame(h2.HEADERS, h2.END_HEADERS, 1, before + STATIC + more) + data()


def split(*parts: bytes, flags: int = 0) -> bytes:
    """A head in HEADERS and CONTINUATION frames."""
    kinds = [h2.HEADERS] + [h2.CONTINUATION] * (len(parts) - 1)
    return b"".join(
        frame(
            kind,
            (flags if kind == h2.HEADERS else 0) | (h2.END_HEADERS if place == len(parts) else 0),
            1,
            part,
        )
        for place, (kind, part) in enumerate(zip(kinds, parts, strict=True), 1)
    )


def _acknowledged(peer: Peer) -> None:
    ack = peer.until(h2.SETTINGS)
    assert (ack.flags, ack.stream, ack.payload) == (h2.ACK, 0, b"")
    lives(peer)


def _too_large(peer: Peer) -> None:
    """The request alone is refused, and the table of headers follows."""
    fields, _ = peer.answered(1)
    assert (fields[":status"], fields["grpc-status"]) == ("431", "8"), fields
    lives(peer)


P, C, F, S, W, Z = (
    h2.PROTOCOL,
    h2.COMPRESSION,
    h2.FRAME_SIZE,
    h2.STREAM_CLOSED,
    h2.FLOW_CONTROL,
    h2.CALM,
)
ROWS = [
    # --- frames and their format ---
    Row("4.1", "a frame of an unknown type", frame(0xFE, 0xFF, 0, b"12345678"), lives),
    Row("4.1", "a flag that is not defined", frame(h2.PING, 0x16, 0, b"12345678"), acknowledges),
    Row(
        "4.1",
        "the reserved bit of the stream",
        frame(h2.PING, 0, 1 << 31, b"12345678"),
        acknowledges,
    ),
    Row("4.2", "a frame of 16,384 bytes", frame(0xFE, 0, 0, bytes(16_384)), lives),
    Row("4.3", "a block that cannot be decoded", frame(h2.HEADERS, WHOLE, 1, b"\xff" * 8), ends(C)),
    Row("4.3", "PRIORITY within a block", BEGUN + frame(h2.PRIORITY, 0, 1, PRIORITY), ends(P)),
    Row("4.3", "HEADERS of another stream within a block", BEGUN + head(3, WHOLE), ends(P)),
    Row("4.3", "an unknown frame within a block", BEGUN + frame(0xFE, 0, 0, b""), ends(P)),
    Row("4.3", "DATA within a block", BEGUN + data(), ends(P)),
    # --- states of streams ---
    Row("5.1", "idle: DATA", data(), ends(P)),
    Row("5.1", "idle: RST_STREAM", frame(h2.RST_STREAM, 0, 1, number(h2.CANCEL)), ends(P)),
    Row("5.1", "idle: WINDOW_UPDATE", frame(h2.WINDOW_UPDATE, 0, 1, number(100)), ends(P)),
    Row("5.1", "idle: CONTINUATION", frame(h2.CONTINUATION, h2.END_HEADERS, 1, block()), ends(P)),
    Row("5.1", "idle: PRIORITY", frame(h2.PRIORITY, 0, 1, PRIORITY) + request(), answers()),
    Row(
        "5.1",
        "half-closed: WINDOW_UPDATE",
        request() + frame(h2.WINDOW_UPDATE, 0, 1, number(9)),
        answers(),
    ),
    Row("5.1", "half-closed: PRIORITY", request() + frame(h2.PRIORITY, 0, 1, PRIORITY), answers()),
    Row(
        "5.1",
        "half-closed: RST_STREAM",
        request() + frame(h2.RST_STREAM, 0, 1, number(h2.CANCEL)),
        lives,
    ),
    Row(
        "5.1",
        "reset: DATA",
        head() + frame(h2.RST_STREAM, 0, 1, number(h2.CANCEL)) + data(),
        resets(S),
    ),
    Row(
        "5.1",
        "reset: HEADERS",
        head() + frame(h2.RST_STREAM, 0, 1, number(h2.CANCEL)) + TRAILER,
        resets(S),
    ),
    Row(
        "5.1",
        "reset: CONTINUATION",
        head()
        + frame(h2.RST_STREAM, 0, 1, number(h2.CANCEL))
        + frame(h2.CONTINUATION, 4, 1, block()),
        ends(P, S),
    ),
    Row(
        "5.1",
        "reset: PRIORITY",
        head() + frame(h2.RST_STREAM, 0, 1, number(h2.CANCEL)) + frame(h2.PRIORITY, 0, 1, PRIORITY),
        lives,
    ),
    Row("5.1.1", "an even stream", head(2, WHOLE), ends(P)),
    Row("5.1.1", "a stream below one before", request(5) + request(3), ends(P)),
    Row("5.4.1", "GOAWAY tells of an error", frame(h2.PING, 0, 3, bytes(8)), ends(P)),
    Row(
        "5.5", "an unknown frame on a stream", head() + frame(0xFE, 0, 1, b"?") + data(), answers()
    ),
    # --- DATA ---
    Row("6.1", "one frame", request(), answers()),
    Row(
        "6.1",
        "several frames",
        head() + data(flags=0, payload=MESSAGE[:2]) + data(payload=MESSAGE[2:]),
        answers(),
    ),
    Row(
        "6.1",
        "padding",
        head() + data(flags=h2.END_STREAM | h2.PADDED, payload=b"\x03" + MESSAGE + bytes(3)),
        answers(),
    ),
    Row(
        "6.1",
        "nothing, which ends the stream",
        head() + data(flags=0) + data(payload=b""),
        answers(),
    ),
    Row("6.1", "on the connection", data(0), ends(P)),
    Row(
        "6.1",
        "more padding than frame",
        head() + data(flags=h2.END_STREAM | h2.PADDED, payload=b"\x06" + MESSAGE),
        ends(P),
    ),
    Row(
        "6.1",
        "padding without its length",
        head() + data(flags=h2.END_STREAM | h2.PADDED, payload=b""),
        ends(P, F),
    ),
    # --- HEADERS ---
    Row("6.2", "padding", PADDED_HEAD + data(), answers()),
    Row(
        "6.2",
        "priority",
        frame(h2.HEADERS, h2.END_HEADERS | h2.WITH_PRIORITY, 1, PRIORITY + block()) + data(),
        answers(),
    ),
    Row("6.2", "padding and priority", FULL_HEAD + data(), answers()),
    Row("6.2", "on the connection", head(0, WHOLE), ends(P)),
    Row(
        "6.2",
        "more padding than frame",
        frame(h2.HEADERS, WHOLE | h2.PADDED, 1, b"\xff" + block()),
        ends(P),
    ),
    # --- PRIORITY ---
    Row("6.3", "on the connection", frame(h2.PRIORITY, 0, 0, PRIORITY), ends(P)),
    Row("6.3", "four bytes", head() + frame(h2.PRIORITY, 0, 1, PRIORITY[:4]), resets(F)),
    Row("6.3", "six bytes", head() + frame(h2.PRIORITY, 0, 1, PRIORITY + b"\0"), resets(F)),
    Row(
        "6.3",
        "exclusive",
        frame(h2.PRIORITY, 0, 1, number(1 << 31) + b"\xff") + request(),
        answers(),
    ),
    # --- RST_STREAM ---
    Row("6.4", "on the connection", frame(h2.RST_STREAM, 0, 0, number(h2.CANCEL)), ends(P)),
    Row("6.4", "three bytes", head() + frame(h2.RST_STREAM, 0, 1, bytes(3)), ends(F)),
    Row("6.4", "an open stream", head() + frame(h2.RST_STREAM, 0, 1, number(h2.CANCEL)), lives),
    # --- SETTINGS ---
    Row(
        "6.5",
        "an acknowledgement that says something",
        frame(h2.SETTINGS, h2.ACK, 0, bytes(6)),
        ends(F),
    ),
    Row("6.5", "on a stream", frame(h2.SETTINGS, 0, 1, bytes(6)), ends(P)),
    Row("6.5", "three bytes", frame(h2.SETTINGS, 0, 0, bytes(3)), ends(F)),
    Row("6.5.2", "ENABLE_PUSH of 2", settings((2, 2)), ends(P)),
    Row("6.5.2", "INITIAL_WINDOW_SIZE above the largest", settings((4, 2**31)), ends(W)),
    Row("6.5.2", "MAX_FRAME_SIZE below the smallest", settings((5, 16_383)), ends(P)),
    Row("6.5.2", "MAX_FRAME_SIZE above the largest", settings((5, 2**24)), ends(P)),
    Row("6.5.2", "a setting nobody knows", settings((0xFF, 1)), lives),
    Row("6.5.3", "acknowledged", settings((3, 9)), _acknowledged),
    # --- PUSH_PROMISE ---
    Row(
        "6.6",
        "from a client",
        head() + frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, number(2) + block()),
        ends(P),
    ),
    # --- PING ---
    Row("6.7", "answered", frame(h2.PING, 0, 0, b"12345678"), acknowledges),
    Row("6.7", "an acknowledgement of nothing", frame(h2.PING, h2.ACK, 0, b"invalid!"), lives),
    Row("6.7", "on a stream", frame(h2.PING, 0, 1, bytes(8)), ends(P)),
    Row("6.7", "seven bytes", frame(h2.PING, 0, 0, bytes(7)), ends(F)),
    # --- GOAWAY ---
    Row("6.8", "on a stream", frame(h2.GOAWAY, 0, 1, bytes(8)), ends(P)),
    Row("6.8", "seven bytes", frame(h2.GOAWAY, 0, 0, bytes(7)), ends(F)),
    # --- WINDOW_UPDATE ---
    Row("6.9", "nothing for the connection", frame(h2.WINDOW_UPDATE, 0, 0, number(0)), ends(P)),
    Row(
        "6.9", "nothing for a stream", head() + frame(h2.WINDOW_UPDATE, 0, 1, number(0)), resets(P)
    ),
    Row("6.9", "three bytes", frame(h2.WINDOW_UPDATE, 0, 0, bytes(3)), ends(F)),
    Row(
        "6.9.1",
        "too much for the connection",
        frame(h2.WINDOW_UPDATE, 0, 0, number(LARGEST_WINDOW)) * 2,
        ends(W),
    ),
    Row(
        "6.9.1",
        "too much for a stream",
        head() + frame(h2.WINDOW_UPDATE, 0, 1, number(LARGEST_WINDOW)) * 2,
        resets(W),
    ),
    # --- CONTINUATION ---
    Row("6.10", "several", split(block()[:3], block()[3:9], block()[9:]) + data(), answers()),
    Row("6.10", "empty ones", split(b"", b"", block(), b"") + data(), answers()),
    Row("6.10", "too many empty ones", split(*[b""] * 200), ends(Z)),
    Row(
        "6.10",
        "on the connection",
        BEGUN + frame(h2.CONTINUATION, h2.END_HEADERS, 0, block()[5:]),
        ends(P),
    ),
    Row(
        "6.10",
        "after a head that is whole",
        head() + frame(h2.CONTINUATION, h2.END_HEADERS, 1, block()),
        ends(P),
    ),
    Row(
        "6.10",
        "after a CONTINUATION that ended",
        split(b"", block()) + frame(h2.CONTINUATION, 4, 1, block()),
        ends(P),
    ),
    Row(
        "6.10",
        "after DATA",
        head() + data(flags=0) + frame(h2.CONTINUATION, h2.END_HEADERS, 1, block()),
        ends(P),
    ),
    # --- errors ---
    Row(
        "7",
        "RST_STREAM with an unknown code",
        head() + frame(h2.RST_STREAM, 0, 1, number(0xFF)),
        lives,
    ),
    # --- messages ---
    Row("8.1", "trailers", head() + data(flags=0) + TRAILER, answers()),
    Row(
        "8.1",
        "a second head without an end",
        head() + data(flags=0) + head(flags=h2.END_HEADERS, fields=[("a", "b")]),
        resets(P),
    ),
    Row(
        "8.1",
        "a pseudo field in trailers",
        head() + data(flags=0) + head(flags=WHOLE, fields=[(":path", "/")]),
        resets(P),
    ),
    Row(
        "8.1",
        "upper case in trailers",
        head() + data(flags=0) + frame(h2.HEADERS, WHOLE, 1, b"\0\x01A\x01b"),
        resets(P),
    ),
    Row(
        "8.1.1",
        "content-length of one frame",
        head(fields=[*REQUEST, ("content-length", "4")]) + data(),
        resets(P),
    ),
    Row(
        "8.1.1",
        "content-length of several frames",
        head(fields=[*REQUEST, ("content-length", "9")]) + data(flags=0) + data(payload=b""),
        resets(P),
    ),
    Row(
        "8.1.1",
        "content-length without a body",
        head(flags=WHOLE, fields=[*REQUEST, ("content-length", "9")]),
        resets(P),
    ),
    Row(
        "8.1.1",
        "content-length that fits",
        head(fields=[*REQUEST, ("content-length", "5")]) + data(),
        answers(),
    ),
    Row(
        "8.1.1",
        "content-length that is no number",
        head(fields=[*REQUEST, ("content-length", "5x")]) + data(),
        resets(P),
    ),
    Row(
        "8.2.1",
        "a name in upper case",
        frame(h2.HEADERS, WHOLE, 1, block() + b"\0\x06X-Test\x02ok"),
        resets(P),
    ),
    Row(
        "8.2.1",
        "a name with a space",
        head(flags=WHOLE, fields=[*REQUEST, ("a b", "c")]),
        resets(P),
    ),
    Row(
        "8.2.1", "a name with a colon", head(flags=WHOLE, fields=[*REQUEST, ("a:", "c")]), resets(P)
    ),
    Row("8.2.1", "no name", frame(h2.HEADERS, WHOLE, 1, block() + b"\0\0\x02ok"), resets(P)),
    Row(
        "8.2.1",
        "a line end in a value",
        head(flags=WHOLE, fields=[*REQUEST, ("a", "b\r\nc: d")]),
        resets(P),
    ),
    Row("8.2.1", "a NUL in a value", head(flags=WHOLE, fields=[*REQUEST, ("a", "b\0")]), resets(P)),
    Row(
        "8.2.1",
        "a space before a value",
        head(flags=WHOLE, fields=[*REQUEST, ("a", " b")]),
        resets(P),
    ),
    Row(
        "8.2.2",
        "a field of the connection",
        head(flags=WHOLE, fields=[*REQUEST, ("connection", "keep-alive")]),
        resets(P),
    ),
    Row(
        "8.2.2",
        "transfer-encoding",
        head(flags=WHOLE, fields=[*REQUEST, ("transfer-encoding", "chunked")]),
        resets(P),
    ),
    Row(
        "8.2.2",
        "te that is not trailers",
        head(flags=WHOLE, fields=changed("te", "trailers, deflate")),
        resets(P),
    ),
    Row(
        "8.3",
        "an unknown pseudo field",
        head(flags=WHOLE, fields=[(":test", "ok"), *REQUEST]),
        resets(P),
    ),
    Row(
        "8.3",
        "a pseudo field of answers",
        head(flags=WHOLE, fields=[(":status", "200"), *REQUEST]),
        resets(P),
    ),
    Row(
        "8.3",
        "a pseudo field behind others",
        head(flags=WHOLE, fields=[*without(":path"), (":path", "/")]),
        resets(P),
    ),
    Row("8.3.1", "an empty :path", head(flags=WHOLE, fields=changed(":path", "")), resets(P)),
    Row(
        "8.3.1",
        "a :path without a slash",
        head(flags=WHOLE, fields=changed(":path", "a")),
        resets(P),
    ),
    Row("8.3.1", "no :method", head(flags=WHOLE, fields=without(":method")), resets(P)),
    Row("8.3.1", "no :scheme", head(flags=WHOLE, fields=without(":scheme")), resets(P)),
    Row("8.3.1", "no :path", head(flags=WHOLE, fields=without(":path")), resets(P)),
    Row(
        "8.3.1",
        "two of :method",
        head(flags=WHOLE, fields=[(":method", "POST"), *REQUEST]),
        resets(P),
    ),
    Row(
        "8.3.1",
        "two of :scheme",
        head(flags=WHOLE, fields=[(":scheme", "http"), *REQUEST]),
        resets(P),
    ),
    Row("8.3.1", "two of :path", head(flags=WHOLE, fields=[(":path", "/"), *REQUEST]), resets(P)),
    Row(
        "8.3.1",
        "an :authority that is none",
        head(flags=WHOLE, fields=changed(":authority", "a b")),
        resets(P),
    ),
    Row(
        "8.3.1",
        "a host that is another than :authority",
        head(flags=WHOLE, fields=[*REQUEST, ("host", "there")]),
        resets(P),
    ),
    Row(
        "10.5.1",
        "a head above the bound",
        head(fields=[*REQUEST, ("a", "x" * 9_000), ("b", "x" * 9_000)]) + data(),
        _too_large,
    ),
    # --- RFC 7541 ---
    Row(
        "HPACK 2.3.3",
        "an index beyond the tables",
        frame(h2.HEADERS, WHOLE, 1, STATIC + b"\xc6"),
        ends(C),
    ),
    Row(
        "HPACK 2.3.3",
        "a name beyond the tables",
        frame(h2.HEADERS, WHOLE, 1, STATIC + b"\x7f\x10\x04test"),
        ends(C),
    ),
    Row(
        "HPACK 4.2",
        "a size of the table at the end of a block",
        frame(h2.HEADERS, WHOLE, 1, STATIC + b"\x21"),
        ends(C),
    ),
    Row("HPACK 4.2", "two sizes at the beginning", hpack(b"", b"\x20\x3f\xe1\x1f"), answers()),
    Row("HPACK 4.2", "many sizes at the beginning", hpack(b"", b"\x20" * 100), ends(C)),
    Row(
        "HPACK 5.1",
        "a number without an end",
        frame(h2.HEADERS, WHOLE, 1, STATIC + b"\xff" * 40),
        ends(C),
    ),
    Row(
        "HPACK 5.2",
        "padding of eight bits",
        frame(h2.HEADERS, WHOLE, 1, STATIC + b"\0\x01a\x82\x1f\xff"),
        ends(C),
    ),
    Row(
        "HPACK 5.2",
        "padding of zeros",
        frame(h2.HEADERS, WHOLE, 1, STATIC + b"\0\x01a\x81\x18"),
        ends(C),
    ),
    Row(
        "HPACK 5.2",
        "the end of strings in a string",
        frame(h2.HEADERS, WHOLE, 1, STATIC + b"\0\x01a\x84\xff\xff\xff\xff"),
        ends(C),
    ),
    Row(
        "HPACK 5.2",
        "a string longer than its block",
        frame(h2.HEADERS, WHOLE, 1, STATIC + b"\0\x01a\x09b"),
        ends(C),
    ),
    Row("HPACK 6.1", "the index 0", frame(h2.HEADERS, WHOLE, 1, STATIC + b"\x80"), ends(C)),
    Row("HPACK 6.1", "an index of the dynamic table", hpack(b"\x40\x01a\x01b\xbe"), answers()),
    Row("HPACK 6.2.1", "a literal that is kept, by index", hpack(b"\x7a\x01b"), answers()),
    Row(
        "HPACK 6.2.1", "a literal that is kept, with its name", hpack(b"\x40\x01a\x01b"), answers()
    ),
    Row("HPACK 6.2.1", "the same in Huffman code", hpack(b"\x40\x81\x1f\x81\x1f"), answers()),
    Row("HPACK 6.2.2", "a literal that is not kept, by index", hpack(b"\x0f\x2b\x01b"), answers()),
    Row(
        "HPACK 6.2.2",
        "a literal that is not kept, with its name",
        hpack(b"\0\x01a\x01b"),
        answers(),
    ),
    Row(
        "HPACK 6.2.3", "a literal that is never kept, by index", hpack(b"\x1f\x2b\x01b"), answers()
    ),
    Row(
        "HPACK 6.2.3",
        "a literal that is never kept, with its name",
        hpack(b"\x10\x01a\x01b"),
        answers(),
    ),
    Row("HPACK 6.3", "a size within the bound", hpack(b"", b"\x3f\x61"), answers()),
    Row(
        "HPACK 6.3",
        "a size above the bound",
        frame(h2.HEADERS, WHOLE, 1, b"\x3f\xff\xff\x03" + STATIC),
        ends(C),
    ),
]


# --- cases that take more than one step ---


def invalid_preface(peer: Peer) -> None:
    peer.send(b"INVALID CONNECTION PREFACE\r\n\r\n")
    assert b"400 Bad Request" in peer.rest()  # another protocol on the same port


def almost_a_preface(peer: Peer) -> None:
    peer.send(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")
    peer.until(h2.SETTINGS)
    peer.connection_error(P)


def no_settings_first(peer: Peer) -> None:
    peer.send(h2.PREFACE + frame(h2.PING, 0, 0, bytes(8)))
    peer.until(h2.SETTINGS)
    peer.connection_error(P)


def largest_frame(peer: Peer) -> None:
    most = peer.begin().settings.get(h2.MAX_FRAME_SIZE, 16_384)
    peer.send(head() + data(flags=0, payload=bytes(most)))
    peer.alive()


def frame_above_the_largest(peer: Peer) -> None:
    most = peer.begin().settings.get(h2.MAX_FRAME_SIZE, 16_384)
    peer.send(head() + data(flags=0, payload=bytes(most + 1)))
    peer.connection_error(F)


def head_above_the_largest_frame(peer: Peer) -> None:
    most = peer.begin().settings.get(h2.MAX_FRAME_SIZE, 16_384)
    peer.send(frame(h2.HEADERS, h2.END_HEADERS, 1, bytes(most + 1)))
    peer.connection_error(F, Z)


def half_closed(sent: bytes, *codes: int) -> Case:
    def run(peer: Peer) -> None:
        peer.begin((h2.INITIAL_WINDOW_SIZE, 0))  # the answer cannot be sent, so the stream stays
        peer.send(request())
        peer.until(h2.HEADERS)
        peer.send(sent)
        peer.stream_error(1, *codes)

    return run


def closed(sent: bytes, *codes: int) -> Case:
    def run(peer: Peer) -> None:
        peer.begin()
        peer.send(request())
        peer.answered(1)
        peer.send(sent)
        peer.connection_error(*codes)

    return run


def closed_priority(peer: Peer) -> None:
    peer.begin()
    peer.send(request())
    peer.answered(1)
    peer.send(frame(h2.PRIORITY, 0, 1, PRIORITY) + frame(h2.WINDOW_UPDATE, 0, 1, number(1)))
    lives(peer)


def too_many_streams(peer: Peer) -> None:
    most = peer.begin().settings[h2.MAX_CONCURRENT_STREAMS]
    last = 2 * most + 1
    peer.send(b"".join(head(stream) for stream in range(1, last + 1, 2)))
    peer.stream_error(last, h2.REFUSED, P)


def windows(*steps: tuple[bytes, int]) -> Case:
    """An answer of seven bytes of data that goes out as the window allows."""

    def run(peer: Peer) -> None:
        peer.begin((h2.INITIAL_WINDOW_SIZE, 0))
        peer.send(request())
        head_frame = peer.until(h2.HEADERS)
        assert not head_frame.flags & h2.END_STREAM
        for sent, due in steps:
            peer.send(sent)
            if due:
                assert len(peer.until(h2.DATA).payload) == due
            peer.alive()

    return run


def initial(size: int) -> bytes:
    return settings((h2.INITIAL_WINDOW_SIZE, size))


def last_setting_counts(peer: Peer) -> None:
    peer.begin((h2.INITIAL_WINDOW_SIZE, 100), (h2.INITIAL_WINDOW_SIZE, 1))
    peer.send(request())
    assert len(peer.until(h2.DATA).payload) == 1
    peer.alive()


def goaway_from_the_client(peer: Peer) -> None:
    peer.begin()
    peer.send(request() + frame(h2.GOAWAY, 0, 0, number(0) + number(0xFF)))
    fields, _ = peer.answered(1)  # with a code that nobody knows, as well
    assert fields["grpc-status"] == "0"


def many_streams_at_once(peer: Peer) -> None:
    peer.begin()
    peer.send(b"".join(map(head, range(1, 41, 2))) + b"".join(map(data, range(1, 41, 2))))
    ended = set()
    for each in peer.frames():
        assert each.kind not in (h2.RST_STREAM, h2.GOAWAY)
        if each.flags & h2.END_STREAM and each.kind in (h2.HEADERS, h2.DATA):
            ended.add(each.stream)
        if len(ended) == 20:
            return
    raise AssertionError(f"only {ended} were answered")


STEPS: dict[str, Case] = {
    "3.4: a preface of something else": invalid_preface,
    "3.4: almost a preface": almost_a_preface,
    "3.4: no SETTINGS behind the preface": no_settings_first,
    "4.2: the largest frame": largest_frame,
    "4.2: DATA above the largest frame": frame_above_the_largest,
    "4.2: HEADERS above the largest frame": head_above_the_largest_frame,
    "5.1: half-closed: DATA": half_closed(data(), S),
    "5.1: half-closed: HEADERS": half_closed(TRAILER, S),
    "5.1: closed: DATA": closed(data(), S),
    "5.1: closed: HEADERS": closed(head(1, WHOLE), S, P),
    "5.1: closed: CONTINUATION": closed(frame(h2.CONTINUATION, h2.END_HEADERS, 1, block()), S, P),
    "5.1: closed: PRIORITY and WINDOW_UPDATE": closed_priority,
    "5.1.2: one stream too many": too_many_streams,
    "6.5.3: the last of two values counts": last_setting_counts,
    "6.8: GOAWAY while a request is under way": goaway_from_the_client,
    "6.9.1: a window of one": windows((initial(1), 1)),
    "6.9.2: a window that grows": windows(
        (initial(1), 1), (initial(3), 2), (frame(h2.WINDOW_UPDATE, 0, 1, number(1)), 1)
    ),
    "6.9.2: a window below nothing": windows(
        (initial(3), 3),
        (initial(2), 0),
        (frame(h2.WINDOW_UPDATE, 0, 1, number(1)), 0),
        (frame(h2.WINDOW_UPDATE, 0, 1, number(1)), 1),
    ),
    "8.1: many streams at once": many_streams_at_once,
}

CASES: dict[str, Case] = {row.name: row.run for row in ROWS} | STEPS
assert len(CASES) == len(ROWS) + len(STEPS), "two cases have one name"
