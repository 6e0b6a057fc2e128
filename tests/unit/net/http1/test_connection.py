"""A connection over a transport that only writes down what it is told."""

from __future__ import annotations

import asyncio
import gzip
import re
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from cloud_ml.net.budget import Budget
from cloud_ml.net.http1 import connection
from cloud_ml.net.http1.calls import TEXT, HttpCall
from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.connection import Http1Connection
from cloud_ml.net.http1.heads import Head, Heads
from cloud_ml.net.http1.limits import Limits
from cloud_ml.serving.errors import BadRequest


@dataclass
class Loop:
    """Calls back when it is told to."""

    now: float = 1000.0
    soon: list[Callable[[], None]] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()


@dataclass
class Transport:
    written: bytes = b""
    reading: bool = True
    ended: bool = False
    closed: bool = False

    def write(self, data: bytes) -> None:
        assert not self.ended
        assert not self.closed
        self.written += data

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.closed

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    abort = close


class Echo:
    """Answers with what it got: at once, or when it is told to."""

    def __init__(self) -> None:
        self.later: list[tuple[HttpCall, bytes]] = []
        self.wait = False

    def understand(self, head: Head) -> str:
        return head.target

    def serve(self, call: HttpCall, meaning: str, body: bytes) -> None:
        if meaning == "/bad":
            call.fail(BadRequest("no"))
        elif self.wait:
            self.later.append((call, meaning.encode() + body))
        else:
            call.reply(200, TEXT, meaning.encode() + body)


class Scene:
    def __init__(self, **limits: Any) -> None:
        self.loop, self.transport, self.service = Loop(), Transport(), Echo()
        from cloud_ml.net.loop_iteration import LoopIteration

        loop: Any = self.loop
        self.clock = Clock(loop)
        self.clock.now = self.loop.now
        made = Http1Connection(
            self.service,
            Heads(self.service.understand),
            replace(Limits(), **limits),
            LoopIteration(loop),
            self.clock,
        )
        self.connection = made
        transport: Any = self.transport
        made.connection_made(transport)

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)
        self.loop.turn()

    def pass_time(self, seconds: float) -> None:
        self.loop.now += seconds
        self.clock.now = self.loop.now
        self.connection.tick(self.loop.now)
        self.loop.turn()

    @property
    def answers(self) -> list[tuple[int, bytes]]:
        """Status and body of each answer."""
        data, made = self.transport.written, []
        while data:
            head, _, data = data.partition(b"\r\n\r\n")
            status = int(head.split()[1])
            length = re.search(rb"Content-Length: (\d+)", head)
            size = int(length[1]) if length else 0
            made.append((status, data[:size]))
            data = data[size:]
        return made


def post(path: str = "/a", body: bytes = b"", *fields: str) -> bytes:
    lines = "".join(f"{each}\r\n" for each in fields)
    return (
        f"POST {path} HTTP/1.1\r\nHost: h\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


CHUNKED = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
STREAM = (
    post("/1", b"one")
    + CHUNKED
    + b"\r\n"
    + post("/2")
    + b"GET /3 HTTP/1.1\r\nhost: h\r\n\r\n"
    + post("/4", b"x" * 50)
)
ANSWERS = [(200, b"/1one"), (200, b"/cabcde"), (200, b"/2"), (200, b"/3"), (200, b"/4" + b"x" * 50)]


def test_many_requests_in_one_piece() -> None:
    scene = Scene()
    scene.send(STREAM)
    assert scene.answers == ANSWERS


def test_heads_that_come_again_and_again_and_change_between() -> None:
    scene = Scene()
    requests = [
        ("/a", b"one"),
        ("/a", b"two"),
        ("/a", b"three"),
        ("/a", b"two"),
        ("/ab", b"two"),
        ("/a", b""),
    ] * 2
    for path, body in requests:
        scene.send(post(path, body))
    assert scene.answers == [(200, path.encode() + body) for path, body in requests]


def test_no_request_is_smuggled_in_a_body_whose_head_came_before() -> None:
    """The body of the second request was read as a request: its head's length was taken from
    ``X-Content-Length``.
    """
    scene = Scene()
    hidden = b"GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"
    for inner in (b"", hidden):
        scene.send(post("/a", inner, "X-Content-Length: 0", "X: ontent-Length: 0"))
        scene.send(post("/a", inner, "X-Content-Length: 0", "X: ontent-Length: 0"))
        scene.send(
            b"GET /b HTTP/1.1\r\nHost: h\r\nX-Content-Length: %d\r\n\r\n" % len(inner) + hidden
        )
    assert scene.answers == [
        (200, b"/a"), (200, b"/a"), (200, b"/b"), (200, b"/hidden"),
        (200, b"/a" + hidden), (200, b"/a" + hidden), (200, b"/b"), (200, b"/hidden"),
    ]  # fmt: skip


def test_cut_at_every_byte() -> None:
    for at in range(1, len(STREAM)):
        scene = Scene()
        scene.send(STREAM[:at])
        scene.send(STREAM[at:])
        assert scene.answers == ANSWERS, at


def test_byte_by_byte() -> None:
    scene = Scene()
    for at in range(len(STREAM)):
        scene.send(STREAM[at : at + 1])
    assert scene.answers == ANSWERS


def test_answers_go_out_in_the_order_of_the_requests() -> None:
    scene = Scene()
    scene.service.wait = True
    scene.send(post("/1") + post("/2") + post("/3"))
    for place in (2, 0, 1):
        call, body = scene.service.later[place]
        call.reply(200, TEXT, body)
        scene.loop.turn()
        assert len(scene.answers) == {2: 0, 0: 1, 1: 3}[place]
    assert [body for _, body in scene.answers] == [b"/1", b"/2", b"/3"]


def test_a_second_answer_to_one_request_goes_nowhere() -> None:
    scene = Scene()
    scene.service.wait = True
    scene.send(post("/1"))
    call, body = scene.service.later[0]
    call.reply(200, TEXT, body)
    assert not call.waits()
    call.fail(BadRequest("late"))
    scene.loop.turn()
    assert scene.answers == [(200, b"/1")]


def test_who_left_is_not_answered() -> None:
    scene = Scene()
    scene.service.wait = True
    scene.send(post("/1"))
    call, body = scene.service.later[0]
    assert call.waits()
    scene.connection.connection_lost(None)
    assert not call.waits()
    call.reply(200, TEXT, body)
    scene.loop.turn()
    assert scene.answers == []


def test_a_request_that_ends_the_connection_is_the_last() -> None:
    scene = Scene()
    scene.send(post("/1", b"", "Connection: close") + post("/2"))
    assert scene.answers == [(200, b"/1")]
    assert b"Connection: close\r\n" in scene.transport.written
    assert scene.transport.ended
    scene.send(b"whatever comes now")
    scene.pass_time(10)
    assert scene.transport.closed


def test_http_1_0() -> None:
    scene = Scene()
    scene.send(b"GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /2 HTTP/1.0\r\n\r\n")
    assert scene.answers == [(200, b"/1"), (200, b"/2")]
    assert scene.transport.written.count(b"Connection: keep-alive") == 1
    assert scene.transport.ended


def test_an_answer_to_head_has_no_body() -> None:
    scene = Scene()
    scene.send(b"HEAD /longer HTTP/1.1\r\nHost: h\r\n\r\n")
    assert scene.transport.written.endswith(b"Content-Length: 7\r\n\r\n")


def test_a_client_that_asks_before_it_sends_is_told_to() -> None:
    scene = Scene()
    whole = post("/1") + post("/2", b"body", "Expect: 100-continue")
    scene.send(whole[:-4])
    assert scene.transport.written.endswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    scene.send(b"body")
    assert scene.answers == [(200, b"/1"), (100, b""), (200, b"/2body")]


def test_what_is_too_large_is_refused_before_it_comes() -> None:
    scene = Scene(body_bytes=100)
    scene.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n")
    assert [status for status, _ in scene.answers] == [413]
    assert scene.transport.ended


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (post("/1", b"x" * 101), 413),
        pytest.param(b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 70_000, 431, id="no end"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"a" * 70_000 + b"\r\n\r\n",
            431,
            id="an end far away",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n\r\n", 400),
    ],
)
def test_a_refusal_answers_what_came_before_and_ends(data: bytes, status: int) -> None:
    scene = Scene(body_bytes=100)
    scene.service.wait = True
    scene.send(post("/0") + data + post("/never"))
    call, body = scene.service.later.pop()
    assert not scene.transport.written
    call.reply(200, TEXT, body)
    scene.loop.turn()
    assert [each for each, _ in scene.answers] == [200, status]
    assert orjson.loads(scene.answers[1][1])["error"]
    assert scene.transport.ended
    assert not scene.service.later


LONG = f"A: {'a' * 20_000}"
MANY = "\r\n".join(f"a{n}: b" for n in range(150))


@pytest.mark.parametrize("line", [LONG, MANY], ids=["long", "many fields"])
@pytest.mark.parametrize("step", [1_000_000, 1_000, 7])
def test_an_oversized_head_costs_its_own_request_only(line: str, step: int) -> None:
    scene = Scene()
    stream = (
        post("/0", b"zero")
        + post("/1", b"one", line)
        + post("/2", b"two")
        + post("/3", b"", line)
        + post("/4")
    )
    for at in range(0, len(stream), step):
        scene.send(stream[at : at + step])
    assert [status for status, _ in scene.answers] == [200, 431, 200, 431, 200]
    assert scene.answers[2] == (200, b"/2two")
    assert "16384 bytes or 100 fields" in orjson.loads(scene.answers[1][1])["error"]
    assert not scene.transport.ended


@pytest.mark.parametrize(
    "data",
    [
        post("/1", b"one", LONG, "Expect: 100-continue"),
        post("/1", b"x" * 70_000, LONG),
        CHUNKED.replace(b"Host: h\r\n", b"Host: h\r\n%b\r\n" % LONG.encode()),
        post("/1", b"one", f"A: {'a' * 70_000}"),
        post("/1", b"one", *[f"a{n}: b" for n in range(500)]),
    ],
    ids=["expects", "long body", "chunked", "very long", "very many fields"],
)
def test_an_oversized_head_whose_request_does_not_end_nearby_ends_the_connection(
    data: bytes,
) -> None:
    scene = Scene()
    scene.send(data + post("/2"))
    assert [status for status, _ in scene.answers] == [431]
    assert scene.transport.ended


@pytest.mark.parametrize(
    "fields", ["Content-Length: 3", "Transfer-Encoding: chunked", "Host: h", "no field"]
)
def test_an_oversized_head_is_as_strict_as_any(fields: str) -> None:
    scene = Scene()
    scene.send(post("/1", b"one", LONG, fields))
    assert [status for status, _ in scene.answers] == [400]
    assert scene.transport.ended


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_bodies_that_are_packed(name: str, pack: Callable[[bytes], bytes]) -> None:
    scene = Scene(body_bytes=1000)
    scene.send(post("/1", pack(b"hello"), f"Content-Encoding: {name}"))
    scene.send(post("/2", b"hello", f"Content-Encoding: {name}"))
    scene.send(post("/3", pack(bytes(1001)), f"Content-Encoding: {name}"))
    scene.send(post("/4", pack(b"hello") + b"x", f"Content-Encoding: {name}"))
    assert [status for status, _ in scene.answers] == [200, 400, 413, 400]
    assert scene.answers[0][1] == b"/1hello"


def test_large_answers_are_packed_for_who_takes_it() -> None:
    scene = Scene(compress_bytes=100)
    scene.send(post("/1", bytes(200), "Accept-Encoding: gzip"))
    assert b"Content-Encoding: gzip\r\n" in scene.transport.written
    assert gzip.decompress(scene.answers[0][1]) == b"/1" + bytes(200)
    scene.send(post("/2", bytes(50), "Accept-Encoding: gzip") + post("/3", bytes(200)))
    assert [body[:2] for _, body in scene.answers[1:]] == [b"/2", b"/3"]


def test_nothing_is_read_while_the_peer_does_not_read() -> None:
    scene = Scene()
    scene.connection.pause_writing()
    assert not scene.transport.reading
    scene.send(post("/1"))
    assert scene.answers == []
    scene.connection.resume_writing()
    scene.loop.turn()
    assert scene.transport.reading
    assert scene.answers == [(200, b"/1")]


@pytest.mark.parametrize("limits", [{"pipelined": 4}, {"body_bytes": 100}])
def test_only_so_much_is_taken_from_who_does_not_wait_for_answers(limits: dict[str, int]) -> None:
    scene = Scene(**limits)
    scene.service.wait = True
    scene.send(b"".join(post(f"/{n}", b"x" * 30) for n in range(20)))
    assert len(scene.service.later) == 4
    assert not scene.transport.reading
    for number in range(20):
        call, body = scene.service.later[number]
        call.reply(200, TEXT, body)
        scene.loop.turn()
    assert [body[:-30].decode() for _, body in scene.answers] == [f"/{n}" for n in range(20)]
    assert scene.transport.reading


@pytest.mark.parametrize(
    ("data", "seconds"),
    [(b"POST /", 11), (post("/1", b"abcdef")[:-3], 21), (CHUNKED[:-12], 21)],
)
def test_who_is_slow_is_told_and_cut(data: bytes, seconds: float) -> None:
    scene = Scene()
    scene.send(data)
    scene.pass_time(seconds - 2)
    assert not scene.answers
    scene.pass_time(3)
    assert [status for status, _ in scene.answers] == [408]
    scene.pass_time(10)
    assert scene.transport.closed


def test_a_trickle_does_not_count_as_progress() -> None:
    scene = Scene()
    for byte in post("/1", bytes(1000))[:60]:
        scene.send(bytes([byte]))
        scene.pass_time(1)
    assert [status for status, _ in scene.answers] == [408]


def test_who_idles_too_long_or_does_not_read_is_cut() -> None:
    idle, deaf = Scene(), Scene()
    idle.send(post("/1"))
    idle.pass_time(290)
    assert not idle.transport.closed
    idle.pass_time(20)
    assert idle.transport.closed
    deaf.send(post("/1"))
    deaf.connection.pause_writing()
    deaf.pass_time(30)
    assert deaf.transport.closed


def test_who_waits_for_us_is_not_cut() -> None:
    scene = Scene()
    scene.service.wait = True
    scene.send(post("/1"))
    scene.pass_time(1000)
    call, body = scene.service.later[0]
    call.reply(200, TEXT, body)
    scene.loop.turn()
    assert scene.answers == [(200, b"/1")]


def test_leaving_ends_what_is_under_way_first() -> None:
    idle, busy, half = Scene(), Scene(), Scene()
    busy.service.wait = True
    idle.send(post("/1"))
    idle.pass_time(3)
    busy.send(post("/1"))
    half.send(post("/1", b"abc")[:-1])
    for scene in (idle, busy, half):
        scene.connection.leave()
    assert idle.transport.closed
    assert not busy.transport.closed
    call, body = busy.service.later[0]
    call.reply(200, TEXT, body)
    busy.loop.turn()
    half.send(b"c")
    for scene in (busy, half):
        assert [status for status, _ in scene.answers] == [200]
        assert b"Connection: close" in scene.transport.written
        assert scene.transport.ended


def test_a_request_on_its_way_to_a_connection_that_leaves_is_answered() -> None:
    """Closing at once broke callers who had sent the next one in the same moment."""
    caller, gone = Scene(), Scene()
    for scene in (caller, gone):
        scene.send(post("/1"))
        scene.connection.leave()
        assert not scene.transport.closed
        assert not scene.transport.ended
    caller.send(post("/2"))
    assert [status for status, _ in caller.answers] == [200, 200]
    assert caller.transport.written.count(b"Connection: close") == 1
    assert caller.transport.ended
    gone.pass_time(2)
    assert not gone.transport.closed
    gone.pass_time(1)
    assert gone.transport.closed


def test_who_sends_no_more_is_still_answered() -> None:
    scene = Scene()
    scene.service.wait = True
    scene.send(post("/1"))
    assert scene.connection.eof_received()
    call, body = scene.service.later[0]
    call.reply(200, TEXT, body)
    scene.loop.turn()
    assert scene.answers == [(200, b"/1")]
    assert not Scene().connection.eof_received()


def test_answers_carry_the_date() -> None:
    loop: Any = asyncio.new_event_loop()
    clock = Clock(loop)
    clock.start()
    clock.stop()
    loop.close()
    assert re.fullmatch(rb"Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n", clock.date)


def test_who_has_closed_its_side_is_answered_for_a_while_and_then_has_left() -> None:
    for seconds, answered in ((50, True), (70, False)):
        scene = Scene(half_closed_s=60.0)
        scene.service.wait = True
        scene.send(post("/1"))
        call, body = scene.service.later[0]
        scene.pass_time(1_000)
        assert call.waits(), "a caller that is there waits for us as long as it takes"
        assert scene.connection.eof_received()
        scene.pass_time(seconds)
        assert scene.transport.closed != answered
        if answered:
            call.reply(200, TEXT, body)
            scene.loop.turn()
            assert scene.answers


def test_bodies_count_in_the_budget_until_they_are_answered_or_lost() -> None:
    budget = Budget(most=100_000)
    first, second = (Scene(budget=budget) for _ in range(2))
    whole, part = post("/1", bytes(60_000)), post("/2", bytes(60_000))[:-1]
    first.service.wait = True
    first.send(whole)
    assert budget.held == 60_000
    second.send(part)
    assert [status for status, _ in second.answers] == [503]
    assert budget.held == 60_000
    call, body = first.service.later[0]
    call.reply(200, TEXT, body)
    first.loop.turn()
    assert budget.held == 0
    for end in ("lost", "eof", "fault"):
        scene = Scene(budget=budget)
        scene.send(CHUNKED[:-12] if end == "fault" else part)
        assert budget.held > 0
        if end == "lost":
            scene.connection.connection_lost(None)
        elif end == "eof":
            scene.connection.eof_received()
        else:
            scene.send(b"zz\r\n" * 3)
        assert budget.held == 0


def test_a_body_of_many_small_pieces_takes_little_more_than_its_bytes() -> None:
    scene = Scene()
    scene.send(post("/1", bytes(300_000))[:-300_000])
    tracemalloc.start()
    try:
        for number in range(99_999):
            scene.connection.data_received(number.to_bytes(3))
        own = tracemalloc.Filter(True, f"{Path(connection.__file__).parents[1]}/*")
        traces = tracemalloc.take_snapshot().filter_traces([own]).statistics("filename")
    finally:
        tracemalloc.stop()
    assert sum(trace.size for trace in traces) < 600_000
    scene.send(b"end")
    assert scene.answers[0][1][-3:] == b"end"


def test_a_request_that_the_service_refuses_is_served_without_its_body() -> None:
    scene = Scene(refused=lambda meaning: meaning == "/bad")
    scene.send(post("/1", b"abc"))
    scene.send(post("/bad", bytes(100_000))[:1_000])
    assert [status for status, _ in scene.answers] == [200, 400]
    assert scene.transport.ended
    scene.send(bytes(99_000))
    assert scene.connection.limits.budget.held == 0
