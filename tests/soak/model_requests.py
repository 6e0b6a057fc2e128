"""Requests to a model server in blocks, over bare sockets: good ones, bad ones, big ones, and
some that give up.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from hpack import Encoder

from cloud_ml.net.http2 import frames
from support.serving import PREDICT, predict_request, tensor_request

BLOCK = 100
"""Requests that are sent together."""
_FIELDS = [
    (":method", "POST"), (":scheme", "http"), (":path", PREDICT),
    ("content-type", "application/grpc"), ("te", "trailers"),
]  # fmt: skip


def _grpc(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def _http(body: bytes, path: str = "/v1/models/linear:predict") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        len(body),
        body,
    )


_GOOD = _grpc(predict_request(x=[1.0, 2.0]).SerializeToString())
_BIG = _grpc(predict_request(x=[0.5] * 6_000).SerializeToString())
_BAD = (
    _grpc(predict_request("nobody", x=[1.0, 2.0]).SerializeToString()),
    _grpc(predict_request(z=[1.0, 2.0]).SerializeToString()),
    _grpc(tensor_request("linear", "x", [1], "int64").SerializeToString()),
    _grpc(b"\xff\xff\xff"),
    _GOOD[:-3],
)
_HTTP = [
    *[_http(b'{"instances": [1.0, 2.0]}')] * 14,
    _http(b'{"instances": [' + b"0.5, " * 6_000 + b"0.5]}"),
    _http(b'{"instances": [[1.0], 2.0]}'),
    _http(b'{"instances": "text"}'),
    _http(b'{"instances": [1.0'),
    _http(b'{"instances": [1.0]}', "/v1/models/nobody:predict"),
    _http(b'{"instances": [1.0]}', "/v1/models/linear/versions/77:predict"),
]


@dataclass
class Counts:
    """What was asked and how it was answered."""

    requests: int = 0
    answered: int = 0
    refused: int = 0
    cancelled: int = 0


@dataclass
class Asker:
    """Asks a server at a port; every block has to be answered as it should be."""

    port: int
    counts: Counts = field(default_factory=Counts)

    def _open(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def http1(self, blocks: int) -> None:
        """Blocks of requests one behind the other on one connection."""
        block = b"".join(_HTTP)
        with self._open() as connection:
            for _ in range(blocks * BLOCK // len(_HTTP)):
                connection.sendall(block)
                seen = b""
                while seen.count(b"HTTP/1.1 ") < len(_HTTP) or not seen.endswith((b"}", b"]")):
                    data = connection.recv(1 << 18)
                    assert data, "it hung up"
                    seen += data
                good = seen.count(b"HTTP/1.1 200 ")
                assert good == 15, seen[:500]
                self._count(len(_HTTP), good)

    def http2(self, blocks: int) -> None:
        """Blocks of calls side by side on one connection; some of them are taken back. Left in
        the middle of one.
        """
        at = 1
        head = Encoder().encode(
            [(name, value, True) for name, value in _FIELDS]
        )  # no table keeps it
        with self._open() as connection:
            connection.sendall(
                frames.PREFACE
                + frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 30})
                + frames.window_update(0, 1 << 30)
            )
            rest = b""
            for _ in range(blocks):
                sent, waiting, good = [], set(), 0
                for number in range(at, at + 2 * BLOCK, 2):
                    kind = number // 2 % 20
                    body = _BIG if kind == 0 else _BAD[kind - 1] if kind <= len(_BAD) else _GOOD
                    sent.append(frames.frame(frames.HEADERS, 4, number, head))
                    for start in range(0, len(body), 16_384):
                        ended = start + 16_384 >= len(body)
                        sent.append(
                            frames.frame(frames.DATA, ended, number, body[start : start + 16_384])
                        )
                    if kind == 19:
                        sent.append(frames.reset(number, frames.CANCEL))
                    else:
                        waiting.add(number)
                        good += kind == 0 or kind > len(_BAD)
                at += 2 * BLOCK
                connection.sendall(b"".join(sent))
                rest, answered = self._read(connection, rest, waiting)
                assert answered >= good, (answered, good)
                self._count(BLOCK, good, BLOCK - len(waiting))
            connection.sendall(
                frames.frame(frames.HEADERS, 4, at, head) + frames.frame(0, 0, at, _BIG[:1000])
            )

    def _read(self, connection: socket.socket, rest: bytes, waiting: set[int]) -> tuple[bytes, int]:
        """Read until all of these are answered; how many messages came."""
        left, messages, received = set(waiting), set(), 0
        while left:
            data = connection.recv(1 << 18)
            assert data, "it hung up"
            rest, at, received = rest + data, 0, received + len(data)
            while len(rest) - at >= 9:
                high, low, kind, flags, number = frames.HEAD.unpack_from(rest, at)
                stop = at + 9 + (high << 8 | low)
                if stop > len(rest):
                    break
                assert kind != frames.GOAWAY, rest[at:stop]
                if kind == frames.DATA:
                    messages.add(number)
                if flags & frames.END_STREAM and kind in (frames.DATA, frames.HEADERS):
                    left.discard(number)
                at = stop
            rest = rest[at:]
        connection.sendall(frames.window_update(0, max(1, received)))
        return rest, len(messages & waiting)

    def _count(self, requests: int, good: int, cancelled: int = 0) -> None:
        self.counts.requests += requests
        self.counts.answered += good
        self.counts.cancelled += cancelled
        self.counts.refused += requests - good - cancelled
