"""Heads of HTTP/1.1 that a server knows again by their bytes: against a server without memory,
and against h11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import h11

from cloud_ml.gateway.fronts import RestFront
from cloud_ml.net.http1.calls import TEXT, HttpCall
from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.connection import Http1Connection
from cloud_ml.net.http1.cors import Cors
from cloud_ml.net.http1.heads import Head, Heads, read_head
from cloud_ml.net.http1.limits import Limits
from cloud_ml.net.loop_iteration import LoopIteration
from fuzz.harness import target
from fuzz.model_world import Loop, Transport

LIMITS = Limits(body_bytes=2_000, head_bytes=1_000)
NUMBER = re.compile(rb"[0-9]+")
OTHER_NUMBERS = (b"0", b"1", b"7", b"18", b"")
Request = tuple[str, str, bytes]
Meaning = tuple[str, str, bytes, str, str, bool, bool]


class Recorder:
    """A service that answers at once, and records what it was asked. It understands heads as the
    gateway does.
    """

    def __init__(self) -> None:
        self._front = RestFront(cast("Any", None), cast("Any", None), Cors(()))
        self.requests: list[Request] = []
        self.meanings: list[Meaning] = []

    def understand(self, head: Head) -> Meaning:
        made = self._front.understand(head)
        return (
            head.method,
            head.target,
            made.lines,
            made.token,
            made.release_name,
            made.safe,
            made.has_body,
        )

    def serve(self, call: HttpCall, meaning: Meaning, body: bytes) -> None:
        self.requests.append((meaning[0], meaning[1], body))
        self.meanings.append(meaning)
        call.reply(404, TEXT, b"")


class ForgetfulHeads(Heads[Meaning]):
    """Reads each head anew."""

    def read(self, data: bytes) -> tuple[Head, Meaning, int]:
        head = read_head(data)
        return head, self._understand(head), head.length


class ForgetfulConnection(Http1Connection[Meaning]):
    """Does not know the head again that it read last."""

    def _requests(self, data: bytes) -> None:
        self._reader.last = b"", None
        super()._requests(data)


class Server:
    """Connections that share what is remembered of heads."""

    def __init__(self, *, remembers: bool) -> None:
        self._recorder = Recorder()
        self._loop: Any = Loop()
        self._kind = Http1Connection if remembers else ForgetfulConnection
        kind = Heads if remembers else ForgetfulHeads
        self._heads: Heads[Meaning] = kind(self._recorder.understand)

    def takes(self, parts: list[bytes]) -> tuple[list[Request], list[Meaning], bytes, bool]:
        """What was asked on a new connection, what the server wrote, and whether it hung up."""
        recorder, transport = self._recorder, Transport()
        recorder.requests, recorder.meanings = [], []
        connection = self._kind(
            recorder, self._heads, LIMITS, LoopIteration(self._loop), Clock(self._loop)
        )
        connection.connection_made(cast("Any", transport))
        for part in parts:
            if not transport.closed:
                connection.data_received(part)
            self._loop.settle()
        connection.connection_lost(None)
        return recorder.requests, recorder.meanings, transport.written, transport.closed


def foreign(data: bytes) -> tuple[list[Request], bool]:
    """The requests that h11 reads, and whether it refused what follows them."""
    connection, made = h11.Connection(h11.SERVER, max_incomplete_event_size=4_000), []
    connection.receive_data(data)
    request, body = None, b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                made.append((request.method.decode(), request.target.decode("latin-1"), body))
                connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    return made, False  # it hangs up
                connection.start_next_cycle()
            else:
                return made, False
    except h11.RemoteProtocolError:
        return made, True


def cut_ways(data: bytes) -> Iterator[list[bytes]]:
    """Whole, a byte each, around each line end, and in two at some places."""
    yield [data]
    if len(data) > 1_500:
        return
    yield [data[at : at + 1] for at in range(len(data))]
    yield re.split(rb"(?<=\r)|(?<=\n)", data)
    step = max(1, len(data) // 6)
    for at in range(step, len(data), step):
        yield [data[:at], data[at:]]


def with_other_numbers(data: bytes) -> Iterator[bytes]:
    """The same bytes, where each number is another: all at once, and one at a time."""
    found = list(NUMBER.finditer(data))[:24]
    for number in OTHER_NUMBERS:
        for each in found:
            yield data[: each.start()] + number + data[each.end() :]
    yield data.replace(b"7", b"11")


def _head(*lines: bytes, first: bytes = b"POST /a HTTP/1.1") -> bytes:
    return b"\r\n".join([first, b"Host: h", *lines, b"", b""])


_SMUGGLED = b"GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"


@target(
    "net.http1.connection", "net.http1.head_reader", "net.http1.heads", "net.http1.incoming_body", "net.http1.chunks", "gateway.fronts",
    seeds=[_head(b"Transfer-Encoding: chunked") + b"3;a=7\r\nabc\r\n0\r\nX: 1\r\n\r\n" + _SMUGGLED, _head(b"Content-Length: 3") + b"abc" + _head(b"Content-Length: 33") + _SMUGGLED,
           _head(b"X-Content-Length: 7") + _head(b"X-Content-Length: 33") + _SMUGGLED, _head(b"A: x ontent-Length: 4", b"Content-Length: 4") + b"abcd",
           _head(b"Content-Length: 5") + b"abcde" + _head(b"Content-Length: ") + b"GET /", _head(b"A: Content-Length: 9") + _SMUGGLED,
           _head(b"content-length: 2", b"Content-Length: 2") + b"ab", _head(b"Content-Length: 3", b"X-Content-Length: 1", b"Cloudml-Release: 9") + b"abc",
           _head(b"Connection: content-length", b"Content-Length: 1") + b"a",
           _head(first=b"POST /?ontent-Length:7 HTTP/1.1"), b"\r\n" + _head(b"Content-Length: 0007") + b"abcdefg" * 3, _head(b"a: b\rContent-Length: 4") + b"abcd",
           _head(b"A: " + b"a" * 1_100, b"Content-Length: 3") + b"abc" + _head(),
           _head(b"Authorization: Bearer cmt1.a.1.x", b"Expect: 100-continue", b"Content-Length: 2") + b"ab"],
    words=["\r\nContent-Length: ", "\r\ncontent-length: ", "ontent-Length: ", "Content-Length: 3\r\n", "X-Content-Length: "
                                                                                                       "7\r\n", "Transfer-Encoding: "
                                                                                                                                  "chunked\r\n", "\r\n", "\r\n\r\n",
           "\r", "\n", "POST /a HTTP/1.1\r\nHost: "
                       "h\r\n", "0\r\n\r\n", "3\r\nabc\r\n", ", ", "Connection: close\r\n", " HTTP/1.0\r\n", " HTTP/1.7\r\n", b"a" * 900, "\t", "\u00b2", "*", "http://h:7", "7", "33"],
)  # fmt: skip
def request_heads(data: bytes) -> None:
    """Whatever heads a server remembers, it reads the requests that a server without memory reads,
    and that h11 does.

    Connections share what is remembered. The same bytes come with other numbers before, and cut in
    many ways.
    """
    forgetful, remembering = Server(remembers=False), Server(remembers=True)
    for each in (data, *with_other_numbers(data), data):
        assert remembering.takes([each]) == forgetful.takes([each])
    expected = forgetful.takes([data])
    for parts in cut_ways(data):
        again = remembering.takes(parts)
        assert (again[0], again[1], again[3]) == (expected[0], expected[1], expected[3])
    # A body is not passed on where it cannot be unpacked, or where its head is too large.
    if b"ontent-encoding" not in data.lower() and b" 431 " not in expected[2]:
        _agrees_with_h11(data, expected[0])


def _agrees_with_h11(data: bytes, requests: list[Request]) -> None:
    """Both read the same requests, as far as both read any."""
    others, refused = foreign(data)
    for ours, other in zip(requests, others, strict=False):
        assert (ours[0], ours[2]) == (other[0], other[2])
        assert ours[1] == other[1] or "://" in other[1]
    assert refused or len(others) >= len(requests) or _tolerated(data)


def _tolerated(data: bytes) -> bool:
    """What h11 waits for or ends on, and a server may take."""
    return b"\r\n\r\n\r\n" in data or data.startswith(b"\r\n")
