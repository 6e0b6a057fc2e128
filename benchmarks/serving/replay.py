"""A client that sends requests of which no two are alike: they are written ahead, and sent as
answers come.

h2load repeats one body. This client keeps as many requests under way, on one connection of HTTP/2
or on several of HTTP/1.1, and needs less processor time for a request than the server.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence

from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.frames import literal
from cloud_ml.serving.grpc.calls import OK_TRAILERS

_WINDOW = 1 << 30
_ANSWER_S = 30.0


def replay_grpc(port: int, path: str, bodies: Sequence[bytes], streams: int) -> list[int]:
    """Ask for each body on one connection; the size of each answer.

    Raises:
        SystemExit: where a call fails.
    """
    head = b"\x83\x86" + literal(":path", path) + literal(":authority", "bench")
    head += literal("content-type", "application/grpc") + literal("te", "trailers")
    with socket.create_connection(("127.0.0.1", port), _ANSWER_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = frames.settings({frames.INITIAL_WINDOW_SIZE: _WINDOW})
        connection.sendall(frames.PREFACE + settings + frames.window_update(0, _WINDOW))
        return _Http2(connection, head, bodies, streams).run()


class _Http2:
    """One connection and what is under way on it."""

    def __init__(
        self, connection: socket.socket, head: bytes, bodies: Sequence[bytes], streams: int
    ) -> None:
        self._connection = connection
        self._head = head
        self._bodies = bodies
        self._streams = streams
        self._window = frames.DEFAULT_WINDOW
        self._sent = self._done = 0
        self._sizes = [0] * len(bodies)
        self._rest = b""

    def run(self) -> list[int]:
        while self._done < len(self._bodies):
            self._send()
            data = self._connection.recv(1 << 18)
            if not data:
                raise SystemExit("the server closed the connection")
            self._read(self._rest + data)
        return self._sizes

    def _send(self) -> None:
        parts: list[bytes] = []
        while self._sent < len(self._bodies) and self._sent - self._done < self._streams:
            body, number = self._bodies[self._sent], 2 * self._sent + 1
            if len(body) > self._window:
                break
            self._window -= len(body)
            parts += (
                frames.frame(frames.HEADERS, frames.END_HEADERS, number, self._head),
                frames.frame(frames.DATA, frames.END_STREAM, number, body),
            )
            self._sent += 1
        if parts:
            self._connection.sendall(b"".join(parts))

    def _read(self, data: bytes) -> None:
        at, end = 0, len(data)
        while end - at >= 9:
            high, low, kind, flags, number = frames.HEAD.unpack_from(data, at)
            start = at + 9
            stop = start + (high << 8 | low)
            if stop > end:
                break
            if kind == frames.DATA:
                self._sizes[number >> 1] += stop - start
            elif kind == frames.HEADERS and flags & frames.END_STREAM:
                if data[start:stop] != OK_TRAILERS:
                    raise SystemExit(f"a call failed: {data[start:stop]!r}")
                self._done += 1
            elif kind == frames.WINDOW_UPDATE and not number:
                self._window += frames.NUMBER.unpack_from(data, start)[0]
            elif kind in (frames.GOAWAY, frames.RST_STREAM):
                raise SystemExit(f"the server ended it: {data[start:stop]!r}")
            at = stop
        self._rest = data[at:]


def replay_http(port: int, path: str, bodies: Sequence[bytes], clients: int) -> list[int]:
    """Ask for each body, on so many connections; the size of each answer.

    Raises:
        SystemExit: where a call fails.
    """
    head = (
        b"POST %b HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: "
        % path.encode()
    )
    requests = [head + b"%d\r\n\r\n%b" % (len(body), body) for body in bodies]
    sizes = [0] * len(bodies)
    connections = [socket.create_connection(("127.0.0.1", port), _ANSWER_S) for _ in range(clients)]
    poll = select.epoll()
    under_way: dict[int, tuple[socket.socket, int]] = {}
    try:
        for sent, connection in enumerate(connections[: len(bodies)]):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(connection, select.EPOLLIN)
            connection.sendall(requests[sent])
            under_way[connection.fileno()] = connection, sent
        sent = len(under_way)
        while under_way:
            for descriptor, _ in poll.poll(_ANSWER_S):
                connection, place = under_way.pop(descriptor)
                sizes[place] = len(_answer(connection, path))
                if sent < len(requests):
                    connection.sendall(requests[sent])
                    under_way[descriptor] = connection, sent
                    sent += 1
        return sizes
    finally:
        poll.close()
        for connection in connections:
            connection.close()


def _answer(connection: socket.socket, path: str) -> bytes:
    """The body of an answer, which comes whole as a rule."""
    data = connection.recv(1 << 18)
    if not data.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"{path}: {data[:500]!r}")
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 18)
    return body
