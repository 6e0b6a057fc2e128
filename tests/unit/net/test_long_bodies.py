"""Long bodies cost a bounded amount of work in a turn of the event loop, and arrive as they were
sent.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from cloud_ml.net import compression
from cloud_ml.net.budget import Budget
from cloud_ml.net.http1.calls import HttpCall
from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.connection import Http1Connection
from cloud_ml.net.http1.heads import Head, Heads
from cloud_ml.net.http1.limits import Limits
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.pieces import Pieces
from cloud_ml.net.tuning import SLICE_BYTES, WRITTEN_AT_ONCE
from unit.net.test_floods import Loop, Transport

SIZE = 1 << 20
TEXT = b"".join(b"%d, " % (number * 7919) for number in range(SIZE // 8))
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1),
    "deflate": lambda data: zlib.compress(data, 1),
}


class Recorded(Transport):
    """Keeps what is written, and how much of it in a turn."""

    def __init__(self, protocol: Any) -> None:
        super().__init__(protocol)
        self.out = bytearray()

    def write(self, data: bytes) -> None:
        super().write(data)
        self.out += data


class Echo:
    """Answers with the body."""

    def __init__(self) -> None:
        self.served: list[bytes | Pieces] = []

    def understand(self, head: Head) -> None: ...

    def serve(self, call: HttpCall, _meaning: None, body: bytes | Pieces) -> None:
        self.served.append(body)
        call.reply(200, b"", body)


class Caller:
    """A connection to an echo."""

    def __init__(self, **limits: Any) -> None:
        loop: Any = Loop()
        self.loop: Loop = loop
        self.echo, self.budget = Echo(), Budget()
        iteration = LoopIteration(loop)
        made: Http1Connection[None] = Http1Connection(
            self.echo,
            Heads(self.echo.understand),
            Limits(budget=self.budget, **limits),
            iteration,
            Clock(loop),
        )
        self.connection = made
        self.transport = Recorded(made)
        transport: Any = self.transport
        made.connection_made(transport)

    def send(self, body: bytes, **fields: str) -> None:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode()
        for piece in (head, *(body[at : at + 262_144] for at in range(0, len(body), 262_144))):
            while not self.transport.reading:
                self.loop.turn()
            self.transport.receive(piece)

    def run(self, most: Callable[[], int] = lambda: 0) -> tuple[int, int]:
        """Run turns until nothing is due: how many, and the largest growth of ``most`` in one."""
        turns = growth = 0
        while self.loop.soon:
            before = most()
            self.loop.turn()
            turns, growth = turns + 1, max(growth, most() - before)
        return turns, growth

    @property
    def answer(self) -> tuple[bytes, bytes]:
        head, _, body = bytes(self.transport.out).partition(b"\r\n\r\n")
        return head, body


def whole(body: bytes | Pieces) -> bytes:
    return body.joined() if isinstance(body, Pieces) else body


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize("text", [TEXT, bytes(SIZE)], ids=["text", "zeros"])
def test_a_compressed_body_is_read_in_many_turns(
    monkeypatch: pytest.MonkeyPatch, text: bytes, encoding: str, *, in_pieces: bool
) -> None:
    made: list[compression.Inflater] = []
    original = compression.Inflater.__init__

    def begin(self: compression.Inflater, *args: Any) -> None:
        original(self, *args)
        made.append(self)

    monkeypatch.setattr(compression.Inflater, "__init__", begin)
    caller = Caller(in_pieces=in_pieces)
    caller.send(PACKERS[encoding](text), Content_Encoding=encoding)
    assert not caller.echo.served
    turns, growth = caller.run(lambda: made[0].size)
    assert growth <= SLICE_BYTES
    assert turns >= len(text) // SLICE_BYTES
    assert whole(caller.echo.served[0]) == text
    assert caller.answer[1] == text
    assert caller.budget.held == 0


def test_what_a_bomb_becomes_counts_in_the_budget_while_it_is_read() -> None:
    caller = Caller()
    caller.budget.most = SIZE // 2
    caller.send(gzip.compress(bytes(SIZE)), Content_Encoding="gzip")
    caller.run()
    assert caller.answer[0].startswith(b"HTTP/1.1 503 ")
    assert caller.budget.held == 0
    assert not caller.echo.served


def test_a_bomb_is_not_read_on_when_its_caller_has_left() -> None:
    caller = Caller()
    caller.send(gzip.compress(bytes(SIZE)), Content_Encoding="gzip")
    caller.connection.connection_lost(None)
    assert caller.run()[0] < 5
    assert caller.budget.held == 0
    assert not caller.echo.served


def test_requests_behind_a_compressed_one_are_answered_behind_it() -> None:
    caller = Caller()
    caller.send(gzip.compress(TEXT, 1), Content_Encoding="gzip")
    caller.send(b"second")
    caller.run()
    assert [whole(each) for each in caller.echo.served] == [b"second", TEXT]
    assert caller.answer[1].startswith(TEXT + b"HTTP/1.1 200 ")
    assert caller.answer[1].endswith(b"second")


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_long_answer_is_written_in_many_turns_and_in_order(*, in_pieces: bool) -> None:
    caller = Caller(in_pieces=in_pieces)
    caller.send(TEXT)
    caller.send(b"second")
    growth = caller.run(lambda: caller.transport.written)[1]
    assert growth <= 2 * WRITTEN_AT_ONCE
    assert caller.answer[1].startswith(TEXT + b"HTTP/1.1 200 ")
    assert caller.answer[1].endswith(b"second")


def test_a_long_answer_waits_while_its_caller_does_not_read() -> None:
    caller = Caller()
    caller.connection.pause_writing()
    caller.connection.resume_writing()
    caller.send(TEXT)
    caller.loop.turn()
    caller.connection.pause_writing()
    caller.run()
    written = caller.transport.written
    assert written < len(TEXT)
    caller.connection.resume_writing()
    caller.run()
    assert caller.answer[1] == TEXT


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_long_answer_is_compressed_in_many_turns(encoding: str) -> None:
    caller = Caller()
    caller.send(TEXT, Accept_Encoding=encoding)
    turns, _ = caller.run()
    assert turns >= len(TEXT) // SLICE_BYTES
    head, body = caller.answer
    assert b"Content-Encoding: " + encoding.encode() in head
    assert compression.decompressed(body, encoding, SIZE * 2) == TEXT


def test_a_connection_that_is_to_end_ends_behind_a_long_answer() -> None:
    caller = Caller()
    ended: list[int] = []
    caller.transport.write_eof = lambda: ended.append(caller.transport.written)  # type: ignore[method-assign]
    caller.send(TEXT, Connection="close")
    caller.run()
    assert caller.answer[1] == TEXT
    assert ended == [len(caller.transport.out)]
