"""An answer is read from bytes alone, however they are cut."""

from __future__ import annotations

from typing import TypeVar

import pytest

from cloud_ml.net.client.answer import Answer, Step
from cloud_ml.net.client.errors import BadStatusLine, CutShort, NotHttp

_T = TypeVar("_T")
_CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: one\r\n\r\n"
)


class _Bytes:
    """What arrives, a piece for each time that more is asked for."""

    def __init__(self, *pieces: bytes) -> None:
        self.arrived = bytearray()
        self._pieces = [one for one in pieces if one]

    def take(self, most: int) -> bytes:
        taken = bytes(self.arrived[:most])
        del self.arrived[: len(taken)]
        return taken

    def more(self) -> bool:
        """``False`` when there are none."""
        if not self._pieces:
            return False
        self.arrived += self._pieces.pop(0)
        return True

    def receive(self, most: int) -> bytes:
        """A piece of the body; empty at the end."""
        if not self.arrived:
            self.more()
        return self.take(most)

    def carry_out(self, step: Step[_T]) -> _T:
        """The value of a step that finds what it needs."""
        try:
            next(step)
            while True:
                step.send(self.more())
        except StopIteration as done:
            value: _T = done.value
            return value


def _read(*pieces: bytes, method: str = "GET") -> tuple[int, bytes, bool]:
    connection = _Bytes(*pieces)
    answer, body = Answer(connection), b""
    connection.carry_out(answer.read_head(method))
    while not answer.over and (most := connection.carry_out(answer.next_block())):
        if not (block := answer.received(connection.receive(most))):
            break
        body += block
    return answer.status, body, answer.reusable


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("data", "read"),
    [
        (_CHUNKED, (200, b"abcde", True)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, b"abc", True)),
        (b"HTTP/1.0 200\r\n\r\nabc", (200, b"abc", False)),
        (b"HTTP/1.1 204 No\r\n\r\n", (204, b"", True)),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", (200, b"a", False)),
    ],
    ids=["chunks", "a length", "up to the end", "none", "the last"],
)
def test_a_body_is_the_same_however_it_is_cut(
    data: bytes, read: tuple[int, bytes, bool], size: int
) -> None:
    assert _read(*(data[at : at + size] for at in range(0, len(data), size))) == read


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", ConnectionResetError),
        (b"SSH-2.0-OpenSSH", BadStatusLine),
        (b"HTTP/1.1 200 OK\r\nContent-Len", CutShort),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", CutShort),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", NotHttp),
        (b"HTTP/1.1 200 OK\r\nA: 1\rContent-Length: 3\r\n\r\n", NotHttp),
        (b"HTTP/1.1 200 OK\r\nA: 1\r\n\r\r\nContent-Length: 3\r\n\r\nabc", NotHttp),
        (b"HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc", NotHttp),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", NotHttp),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", NotHttp),
    ],
)
def test_what_is_no_answer_is_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        _read(data)
