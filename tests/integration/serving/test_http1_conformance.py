"""RFC 9110 and RFC 9112 at the model server and at the gateway, over real sockets."""

from __future__ import annotations

import re
import socket
from typing import NamedTuple, Self

import pytest

BODY = b'{"instances": [3.0]}'
HIDDEN = b"GET /v1/models/linear/hidden HTTP/1.1\r\nHost: h\r\n\r\n"
LONG = b"A: " + b"a" * 20_000


def request(
    *lines: bytes,
    first: bytes = b"GET /v1/models/linear HTTP/1.1",
    host: bytes = b"Host: h",
    body: bytes = b"",
) -> bytes:
    return b"\r\n".join([first, *([host] if host else []), *lines, b"", body])


def predict(*lines: bytes, body: bytes = BODY) -> bytes:
    first = b"POST /v1/models/linear:predict HTTP/1.1"
    return request(*lines, b"Content-Length: %d" % len(body), first=first, body=body)


LAST = request(b"Connection: close")
"""Answered where the connection goes on, and ends it."""


class Case(NamedTuple):
    """What is sent, and the statuses of the answers; ``LAST`` is sent behind it."""

    section: str
    title: str
    sent: bytes
    statuses: list[int]


CASES = [
    Case("9112 2.2", "an empty line before a request", b"\r\n" + request(), [200, 200]),
    Case("9112 2.2", "a bare LF for a line end", request().replace(b"\r\n", b"\n"), [400]),
    Case("9112 2.2", "a bare CR in a head", request(b"a: b\rc: d"), [400]),
    Case("9112 2.2", "white space before the first field", request(host=b" Host: h"), [400]),
    Case(
        "9112 2.3",
        "a later minor version",
        request(first=b"GET /v1/models/linear HTTP/1.2"),
        [200, 200],
    ),
    Case(
        "9112 2.3", "another major version", request(first=b"GET /v1/models/linear HTTP/2.0"), [505]
    ),
    Case(
        "9112 2.3", "a name in lower case", request(first=b"GET /v1/models/linear http/1.1"), [400]
    ),
    Case("9112 3", "two spaces", request(first=b"GET  /v1/models/linear HTTP/1.1"), [400]),
    Case("9112 3.2", "no Host", request(host=b""), [400]),
    Case(
        "9112 3.2",
        "no Host in HTTP/1.0",
        request(first=b"GET /v1/models/linear HTTP/1.0", host=b""),
        [200],
    ),
    Case("9112 3.2", "two Hosts", request(b"Host: h"), [400]),
    Case(
        "9112 3.2",
        "two Hosts in HTTP/1.0",
        request(b"Host: h", first=b"GET /v1/models/linear HTTP/1.0"),
        [400],
    ),
    Case("9112 3.2", "a Host with a space", request(host=b"Host: a b"), [400]),
    Case("9112 3.2", "a Host with a path", request(host=b"Host: a/b"), [400]),
    Case("9112 3.2", "an empty Host", request(host=b"Host:"), [200, 200]),
    Case(
        "9112 3.2.2",
        "an absolute target",
        request(first=b"GET http://x:1/v1/models/linear HTTP/1.1"),
        [200, 200],
    ),
    Case(
        "9112 3.2.2",
        "an absolute target, no Host",
        request(first=b"GET http://x/v1/models/linear HTTP/1.1", host=b""),
        [400],
    ),
    Case(
        "9112 3.2.2",
        "an absolute target, two Hosts",
        request(b"Host: x", first=b"GET http://x/v1/models/linear HTTP/1.1"),
        [400],
    ),
    Case(
        "9112 3.2.2",
        "an absolute target without a host",
        request(first=b"GET http:///v1/models/linear HTTP/1.1"),
        [400],
    ),
    Case("9112 3.2.3", "CONNECT", request(first=b"CONNECT h:80 HTTP/1.1"), [400]),
    Case("9112 3.2.4", "OPTIONS *", request(first=b"OPTIONS * HTTP/1.1"), [200, 200]),
    Case("9112 3.2.4", "GET *", request(first=b"GET * HTTP/1.1"), [400]),
    Case("9112 5.1", "a space before the colon", request(b"a : b"), [400]),
    Case("9112 5.1", "no name", request(b": b"), [400]),
    Case("9112 5.2", "a folded line", request(b"a: b", b" c"), [400]),
    Case("9112 5.4", "a head above the bound", predict(LONG), [431, 200]),
    Case("9112 5.4", "too many fields", predict(*[b"a%d: b" % n for n in range(150)]), [431, 200]),
    Case(
        "9112 6.1",
        "chunks",
        request(
            b"Transfer-Encoding: chunked",
            first=b"POST /v1/models/linear:predict HTTP/1.1",
            body=b"14\r\n" + BODY + b"\r\n0\r\n\r\n",
        ),
        [200, 200],
    ),
    Case("9112 6.1", "chunks and a length", predict(b"Transfer-Encoding: chunked"), [400]),
    Case(
        "9112 6.1",
        "chunks in HTTP/1.0",
        request(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.0", body=b"0\r\n\r\n"),
        [400],
    ),
    Case(
        "9112 6.1", "an encoding nobody knows", request(b"Transfer-Encoding: gzip, chunked"), [501]
    ),
    Case("9112 6.3", "two lengths", predict(b"Content-Length: 20"), [400]),
    Case("9112 6.3", "a list of lengths", request(b"Content-Length: 0, 0"), [400]),
    Case("9112 6.3", "a length with a sign", request(b"Content-Length: +0"), [400]),
    Case(
        "9112 7.1",
        "a size that is none",
        request(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.1", body=b"0x0\r\n\r\n"),
        [400],
    ),
    Case("9112 9.3", "requests behind each other", predict() * 5, [200] * 6),
    Case("9110 8.6", "HEAD", request(first=b"HEAD /v1/models/linear HTTP/1.1"), [200, 200]),
    Case("9110 10.1.1", "an expectation nobody knows", request(b"Expect: more"), [417]),
]


class Connection:
    """Sends bytes, and reads answers as RFC 9112 says."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 20)
        self._came = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self, *, has_body: bool = True) -> tuple[int, bytes] | None:
        """Status and body; None once the server hung up."""
        while b"\r\n\r\n" not in self._came:
            if not self._more():
                assert not self._came
                return None
        head, _, self._came = self._came.partition(b"\r\n\r\n")
        found = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
        assert found is not None, head
        size = int(found[1]) if has_body else 0
        while len(self._came) < size:
            assert self._more()
        body, self._came = self._came[:size], self._came[size:]
        return int(head.split()[1]), body

    def _more(self) -> bool:
        try:
            data = self._socket.recv(65_536)
        except ConnectionResetError:
            return False
        self._came += data
        return bool(data)


@pytest.mark.parametrize("server", ["model server", "gateway"])
@pytest.mark.parametrize(
    "case", [pytest.param(each, id=f"{each.section}: {each.title}") for each in CASES]
)
def test_http1(ports: dict[str, int], server: str, case: Case) -> None:
    with Connection(ports[server]) as connection:
        connection.send(case.sent + LAST)
        statuses = []
        while (
            answer := connection.answer(has_body=case.title != "HEAD" or bool(statuses))
        ) is not None:
            statuses.append(answer[0])
        assert statuses == case.statuses


@pytest.mark.parametrize("server", ["model server", "gateway"])
@pytest.mark.parametrize(
    "line", [b"X-Content-Length: %d", b"X: ontent-Length: %d", b"x-content-length: %d"]
)
def test_no_request_is_smuggled_past_a_head_that_came_before(
    ports: dict[str, int], server: str, line: bytes
) -> None:
    """A head with another number in another field took the length of its body from there, on any
    connection.
    """
    with Connection(ports[server]) as first:
        first.send(predict(line % len(BODY)))
        assert first.answer() == (200, b'{"predictions":[16.0]}')
        first.send(request(line % 0))
        assert first.answer()[0] == 200  # type: ignore[index]
    with Connection(ports[server]) as second:
        second.send(predict(line % 0) + request(line % len(HIDDEN)) + HIDDEN + LAST)
        answers = [second.answer() for _ in range(4)]
    assert [answer[0] for answer in answers if answer is not None] == [200, 200, 400, 200]
    assert answers[0] == (200, b'{"predictions":[16.0]}')
