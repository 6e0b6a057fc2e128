"""A client of HTTP/2 that sends frames by hand over a real socket: written from RFC 9113, and
not from the server.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from hpack import Decoder, Encoder

(
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION,
) = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL, INTERNAL, FLOW_CONTROL, SETTINGS_TIMEOUT, STREAM_CLOSED, FRAME_SIZE, REFUSED = (
    range(8)
)
CANCEL, COMPRESSION, CONNECT, CALM = range(8, 12)
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_CONCURRENT_STREAMS = 4, 5, 3
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATIENCE_S = 10.0
Fields = Sequence[tuple[str, str]]


class Frame(NamedTuple):
    """A frame that came."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of RST_STREAM and GOAWAY."""
        return int.from_bytes(self.payload[4:8] if self.kind == GOAWAY else self.payload[:4], "big")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Section 4.1."""
    return (
        len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
    )


def settings(*values: tuple[int, int]) -> bytes:
    """Section 6.5."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HL", *each) for each in values))


def number(value: int) -> bytes:
    """Four bytes."""
    return value.to_bytes(4, "big")


class Peer:
    """One connection. Each has its own table of headers, as section 4.3 says."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._encoder, self._decoder = Encoder(), Decoder()
        self._came = b""
        self.settings: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def begin(self, *values: tuple[int, int]) -> Self:
        """Exchange prefaces and settings."""
        self.send(PREFACE + settings(*values))
        settings_frame = self.until(SETTINGS)
        self.settings = dict(struct.iter_unpack(">HL", settings_frame.payload))
        assert self.until(SETTINGS).flags & ACK
        self.send(frame(SETTINGS, ACK, 0))
        return self

    def block(self, fields: Fields, *, huffman: bool = True) -> bytes:
        """A block of headers."""
        return self._encoder.encode(list(fields), huffman=huffman)

    def timeout(self, seconds: float) -> None:
        """How long to wait for bytes from now on."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        """Send bytes; whoever hung up already will be found by reading."""
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    def frames(self) -> Iterator[Frame]:
        """What comes, until the other side hangs up."""
        while True:
            size = int.from_bytes(self._came[:3], "big") + 9 if len(self._came) >= 9 else None
            if size is not None and len(self._came) >= size:
                kind, flags, stream = (
                    self._came[3],
                    self._came[4],
                    int.from_bytes(self._came[5:9], "big") & 0x7FFFFFFF,
                )
                payload, self._came = self._came[9:size], self._came[size:]
                yield Frame(kind, flags, stream, payload)
                continue
            try:
                more = self._socket.recv(65_536)
            except ConnectionResetError:
                return
            if not more:
                return
            self._came += more

    def until(self, *kinds: int, stream: int | None = None) -> Frame:
        """The next frame of one of these kinds."""
        for each in self.frames():
            if each.kind in kinds and stream in (None, each.stream):
                return each
        raise AssertionError("it hung up")

    def rest(self) -> bytes:
        """All bytes until the other side hangs up."""
        while more := self._socket.recv(65_536):
            self._came += more
        return self._came

    # --- what is expected of a server ---

    def alive(self) -> None:
        """The connection goes on: a ping is answered, and nothing ended before it."""
        self.send(frame(PING, 0, 0, b"are you?"))
        for each in self.frames():
            assert each.kind != GOAWAY, f"GOAWAY with code {each.code}: {each.payload[8:]!r}"
            if each.kind == PING and each.flags & ACK and each.payload == b"are you?":
                return
        raise AssertionError("it hung up")

    def connection_error(self, *codes: int) -> None:
        """Section 5.4.1: GOAWAY with such a code, and then the end of the connection."""
        farewell = self.until(GOAWAY)
        assert farewell.code in codes, (farewell.code, farewell.payload[8:])
        for each in self.frames():
            raise AssertionError(f"after GOAWAY there came {each}")

    def stream_error(self, stream: int, *codes: int) -> None:
        """Section 5.4.2: RST_STREAM with such a code, and the connection goes on."""
        for each in self.frames():
            assert each.kind != GOAWAY, f"GOAWAY with code {each.code}: {each.payload[8:]!r}"
            if each.kind == RST_STREAM and each.stream == stream:
                assert each.code in codes, each.code
                return self.alive()
        raise AssertionError("it hung up")

    def answered(self, stream: int) -> tuple[dict[str, str], bytes]:
        """The fields of an answer and of its trailers, and its body."""
        fields: dict[str, str] = {}
        body = b""
        for each in self.frames():
            assert each.kind != GOAWAY, f"GOAWAY with code {each.code}: {each.payload[8:]!r}"
            if each.kind == HEADERS:
                assert each.flags & END_HEADERS
                found = self._decoder.decode(each.payload)
                fields |= dict(found) if each.stream == stream else {}
            elif each.kind == DATA and each.stream == stream:
                body += each.payload
            assert each.kind != RST_STREAM or each.stream != stream, each.code
            if each.kind in (HEADERS, DATA) and each.stream == stream and each.flags & END_STREAM:
                return fields, body
        raise AssertionError("it hung up")
