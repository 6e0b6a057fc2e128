"""Heads of HTTP/2 that a connection knows again by their bytes: against a connection without
memory.
"""

from __future__ import annotations

from typing import Any, cast

from hpack import Encoder

from cloud_ml.gateway.fronts import GrpcFront, RestFront
from cloud_ml.net.http1.cors import Cors
from cloud_ml.net.http1.limits import Limits as Http1Limits
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.headers import Blocks
from cloud_ml.net.http2.http_requests import HttpOverHttp2
from cloud_ml.net.http2.service import Answers
from cloud_ml.net.http2.stream import Limits, Received
from cloud_ml.net.loop_iteration import LoopIteration
from fuzz.harness import cuts, target
from fuzz.model_world import Loop, Transport

LEAD = frames.PREFACE + frames.settings({})
OK = b"\x88"
Meaning = tuple[Any, ...]


class Recorder:
    """A service that answers at once, and records what it was asked. It understands heads as the
    gateway does.
    """

    def __init__(self) -> None:
        nobody = cast("Any", None)
        self._front = GrpcFront(
            nobody,
            nobody,
            HttpOverHttp2(RestFront(nobody, nobody, Cors(())), Http1Limits(), nobody, nobody),
        )
        self.requests: list[tuple[int, Meaning, bytes]] = []

    def understand(self, fields: list[tuple[bytes, bytes]]) -> Meaning:
        made = self._front.understand(fields)
        meaning = tuple(
            getattr(made, name)
            for name in ("release_name", "block", "safe", "streams", "timeout", "token")
        )
        rest = made.http.meaning if made.http is not None else None
        written = (
            (rest.lines, rest.token, rest.release_name, rest.safe, rest.has_body)
            if rest is not None
            else None
        )
        return tuple(fields), meaning, made.refusal is not None, written

    def length(self, head: Meaning, begun: memoryview) -> int:
        return 0

    def serve(self, connection: Answers, stream: int, head: Meaning, body: Received) -> None:
        self.requests.append((stream, head, bytes(body)))
        connection.answer(stream, OK, (2, (b"ok",)), b"\0\x01a\x01b")

    def sink(self, connection: Answers, stream: int, head: Meaning) -> None:
        return None


class ForgetfulBlocks(Blocks[Any]):
    """Decodes each block anew."""

    def _keep(self, block: bytes, found: Any, size: int) -> None:
        pass


def served(
    parts: list[bytes], *, remembers: bool
) -> tuple[list[tuple[int, Meaning, bytes]], bytes, bool]:
    """What was asked on a new connection, what the server wrote, and whether it hung up."""
    recorder, loop, transport = Recorder(), cast("Any", Loop()), Transport()
    limits = Limits(2_000, lambda stream: (frames.reset(stream, 8),), head_bytes=1_000, resets=50)
    connection = Http2Connection(recorder, limits, LoopIteration(loop))
    if not remembers:
        heads: Any = connection._requests._heads
        heads.__class__ = ForgetfulBlocks
    connection.connection_made(cast("Any", transport))
    for part in parts:
        if not transport.closed:
            connection.data_received(part)
    loop.settle()
    connection.connection_lost(None)
    return recorder.requests, transport.written, transport.closed


def _asks(stream: int, block: bytes, body: bytes = b"x") -> bytes:
    return frames.frame(frames.HEADERS, 0x4, stream, block) + frames.frame(
        frames.DATA, 0x1, stream, body
    )


def _fields(*more: tuple[str, str]) -> list[tuple[str, str]]:
    return [(":method", "POST"), (":scheme", "http"), (":path", "/a"), *more]


_PLAIN = b"\x83\x86\x04\x02/a"
_KEEPS = Encoder()
_SAME = [
    _asks(
        stream, _KEEPS.encode(_fields(("content-type", "application/grpc"), ("grpc-timeout", "1S")))
    )
    for stream in (1, 3, 5, 7)
]


@target(
    "net.http2.connection", "net.http2.headers", "net.http2.requests", "gateway.fronts",
    seeds=[b"".join(_SAME), _asks(1, _PLAIN) + _asks(3, _PLAIN) + _asks(5, _PLAIN + b"\0\x01a\x01b"),
           _asks(1, _PLAIN + b"\x40\x01a\x01b") + _asks(3, _PLAIN + b"\xbe") + _asks(5, _PLAIN + b"\x40\x01a\x01c") + _asks(7, _PLAIN + b"\xbe"),
           _asks(1, _PLAIN + b"\x40\x01a\x01b") + _asks(3, _PLAIN + b"\xbe") * 2 + _asks(7, b"\x20" + _PLAIN) + _asks(9, _PLAIN + b"\xbe"),
           _asks(1, _PLAIN + b"\0\x0econtent-length\x011") + _asks(3, _PLAIN + b"\0\x0econtent-length\x011", b"xy") + _asks(5, _PLAIN + b"\0\x0econtent-length\x011"),
           _asks(1, _PLAIN) + frames.frame(frames.HEADERS, 0x4, 3, _PLAIN) + frames.frame(frames.HEADERS, 0x5, 3, _PLAIN) + _asks(5, _PLAIN),
           _asks(1, _PLAIN + b"\0\x0dauthorization\x08Bearer x") + _asks(3, _PLAIN + b"\0\x0dauthorization\x08Bearer y"),
           _asks(1, _PLAIN + b"\0\x01a\x7f\xff\x08" + b"y" * 1_279) + _asks(3, _PLAIN), frames.settings({1: 0}) + _asks(1, b"\x3f\xe1\x1f" + _PLAIN) + _asks(3, b"\x3f\xe1\x1f" + _PLAIN)],
    words=[_PLAIN, b"\xbe", b"\xbf", b"\x20", b"\x40\x01a\x01b", b"\x40\x01a\x01c", b"\x3f\xe1\x1f", _asks(9, _PLAIN), _asks(11, _PLAIN + b"\xbe"), _asks(13, _PLAIN + b"\x40\x01d\x01e"),
           b"\0\0\0\x01\x05", frames.reset(3, 8), b"\0\x0econtent-length\x011", b"\x83\x86\x84"],
)  # fmt: skip
def request_blocks(data: bytes) -> None:
    """A connection that remembers blocks reads the requests, and answers, as one that decodes
    each anew.
    """
    whole = served([LEAD + data], remembers=True)
    assert whole == served([LEAD + data], remembers=False)
    if len(data) < 1_000:
        for parts in cuts(data):
            again = served([LEAD, *parts], remembers=True)
            assert (again[0], again[2]) == (whole[0], whole[2])
