"""What the gateway reads: tokens and requests of callers, answers of replicas, which run code of
tenants.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

from cloud_ml.auth.tokens import derived_key, make_token
from cloud_ml.controller.routing.readiness import parse_refusal
from cloud_ml.domain.services.routes import CallingKey
from cloud_ml.gateway.access import Access, bearer
from cloud_ml.gateway.client_limits import ClientLimits
from cloud_ml.gateway.fronts import GrpcFront, RestFront
from cloud_ml.gateway.http1 import Http1Client
from cloud_ml.gateway.http2 import Http2Client
from cloud_ml.net.budget import Budget
from cloud_ml.net.http1.cors import Cors
from cloud_ml.net.http1.heads import read_head
from cloud_ml.net.http1.limits import Limits
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.headers import is_malformed
from cloud_ml.net.http2.http_requests import HttpOverHttp2
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.net.work_share import WorkShare
from fuzz.harness import cuts, target

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
GOOD = make_token("AK.fuzz", "a secret", datetime.fromtimestamp(NOW.timestamp() + 60, UTC))


NARROW = make_token(
    "AK.fuzz", "a secret", datetime.fromtimestamp(NOW.timestamp() + 60, UTC), service="linear/v1"
)
ELSEWHERE = make_token(
    "AK.fuzz", "a secret", datetime.fromtimestamp(NOW.timestamp() + 60, UTC), service="linear/v2"
)


@target(
    "auth.tokens",
    "gateway.access",
    seeds=[f"Bearer {GOOD}", f"bearer  {GOOD}", "Bearer cmt1.a.1.x", GOOD, "Basic YTpi", "Bearer " + GOOD.replace("fuzz", "fuzy"),
           f"Bearer {NARROW}", f"Bearer {ELSEWHERE}"],
    words=["Bearer ", "cmt1.", "cmt2.", ".", "/", GOOD, NARROW, "9999999999", "\u0661"],
)  # fmt: skip
def model_token(data: bytes) -> None:
    """Nothing but the token itself opens a service."""
    access = Access(3600.0, NOW.timestamp)
    access.learn({"AK.fuzz": CallingKey("mine", derived_key("a secret").hex())})
    token = bearer(data.decode("latin-1"))
    assert (access.refusal(token, "mine", "linear/v1") is None) == (token in (GOOD, NARROW))
    assert access.refusal(token, "theirs", "linear/v1") is not None


LIMITS = ClientLimits(body_bytes=1 << 16, head_bytes=1024, control_frames=50, turn_units=20)
ENDLESS = 1 << 18
"""Bytes of a replica that says the same again and again."""


class _Ground:
    """A loop that runs when it is told to, and a transport that keeps nothing."""

    def __init__(self) -> None:
        self.time = lambda: 0.0
        self.closed = False
        self.written = 0
        self.reading = True
        self._calls: list[Any] = []

    def call_soon(self, call: Any) -> None:
        self._calls.append(call)

    def turns(self) -> None:
        """Run until nothing is left to do."""
        while self._calls:
            calls, self._calls = self._calls, []
            for call in calls:
                call()

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed


class _CountedShare(WorkShare):
    """Counts all work."""

    def __init__(self, ground: Any) -> None:
        super().__init__(LIMITS.turn_units, ground)
        self.spent = 0

    def spend(self, units: int) -> bool:
        may = super().spend(units)
        self.spent += units if may else 0
        return may


def _feed(ground: Any, client: Any, pieces: Iterable[bytes]) -> int:
    """Give a client what a replica sends, until it hangs up; how many bytes that were."""
    fed = 0
    for piece in pieces:
        if ground.closed:
            break
        assert ground.reading
        client.data_received(piece)
        fed += len(piece)
        ground.turns()
    return fed


def _bounded(share: _CountedShare, ground: Any, callers: list[_Caller], fed: int) -> None:
    """Work and answers of the gateway's own grow with what is of use, not with what a replica
    sends.
    """
    useful = sum(caller.size for caller in callers)
    assert share.spent <= 12 * LIMITS.control_frames + fed // 1_000 + useful + 2 * LIMITS.head_bytes
    assert ground.written <= 64 * LIMITS.control_frames


class _Caller:
    """Counts what it is told: once and no more."""

    streams = False

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.size = 0

    def ended(self, *parts: Any) -> None:
        self.answers.append(parts)
        self.size += len(str(parts))

    answered = ended

    def began(self, _head: bytes) -> None: ...

    def piece(self, data: bytes) -> None:
        self.size += len(data)

    def failed(self, **why: bool) -> None:
        self.answers.append(why)


_ANSWER = b"\x88" + frames.literal("content-type", "application/grpc")


@target(
    "gateway.http2",
    "gateway.http2_calls",
    "gateway.answer_heads",
    seeds=[
        frames.settings({3: 9}) + frames.frame(1, 4, 1, _ANSWER) + frames.frame(0, 0, 1, b"body") + frames.frame(1, 5, 1, b""),
        frames.settings({}) + frames.frame(1, 5, 1, _ANSWER) + frames.goaway(0, 0),
        frames.settings({}) + frames.reset(1, 7) + frames.frame(6, 0, 0, bytes(8)),
        frames.settings({4: 1, 5: 16_384}) + frames.window_update(1, 9) + frames.frame(1, 0, 1, _ANSWER[:9]) + frames.frame(9, 5, 1, _ANSWER[9:]),
        frames.settings({}) + frames.frame(1, 4, 1, b"\x08\x03100") + frames.frame(1, 5, 1, _ANSWER),
        frames.frame(1, 4, 1, b"\x08\x03100"),
        frames.frame(6, 0, 0, bytes(8)),
        frames.settings({}),
        frames.window_update(1, 1),
        frames.frame(2, 0, 1, bytes(5)),
        frames.frame(1, 4, 1, _ANSWER) + frames.frame(0, 0, 1),
        frames.frame(1, 4, 1, b"\x20" * 400),
    ],
    words=["\x00\x00\x04\x08", "\x00\x00\x04\x03", "\x00\x00\x00\x04\x01", "\x88", "content-length"],
)  # fmt: skip
def replica_frames(data: bytes) -> None:
    """Whatever a replica sends, each call ends once and no more, at the latest with the
    connection.
    """
    for pieces in cuts(data):
        _replica_frames(pieces)
    if data:  # the same again and again; SETTINGS come first, as a connection begins with them
        _replica_frames(
            [frames.settings({})] + [data * (65_536 // min(len(data), 65_536))] * (ENDLESS >> 16)
        )


def _replica_frames(pieces: list[bytes]) -> None:
    ground = cast("Any", _Ground())
    share, reasons = _CountedShare(ground), cast("list[str]", [])
    client = Http2Client(
        LIMITS,
        LoopIteration(ground),
        lambda _: None,
        share=share,
        report=reasons.append,
        bodies=(bodies := Budget()),
    )
    client.connection_made(ground)
    callers = [_Caller(), _Caller()]
    for caller in callers:
        client.call(b"\x83\x86\x84", b"request", cast("Any", caller))
    fed = _feed(ground, client, pieces)
    client.connection_lost(None)
    assert [len(caller.answers) for caller in callers] == [1, 1]
    assert bodies.held == 0
    _bounded(share, ground, callers, fed)


@target(
    "gateway.http1",
    seeds=[b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: y\r\n\r\nabc", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\nConnection: close\r\n\r\n",
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nab", b"HTTP/2 200\r\n\r\n",
           b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nX: y\r\n\r\n", b"HTTP/1.1 101 S\r\n\r\n"],
    words=["HTTP/1.1 200 OK\r\n", "Content-Length: ", "\r\n\r\n", "Connection: close\r\n", "\n", "\x0b", "99999999999"],
)  # fmt: skip
def replica_head(data: bytes) -> None:
    """The same answer however the bytes arrive, and one for each call; no line is passed on that
    could be two.
    """
    found = {str(_replica_head(pieces)) for pieces in cuts(data[:2000])}
    assert len(found) <= 1
    if data:
        _replica_head([data * (65_536 // min(len(data), 65_536))] * (ENDLESS >> 16))


def _replica_head(pieces: list[bytes]) -> Any:
    ground, caller = cast("Any", _Ground()), _Caller()
    share, reasons = _CountedShare(ground), cast("list[str]", [])
    client = Http1Client(
        LIMITS,
        lambda _: None,
        lambda _: None,
        share=share,
        report=reasons.append,
        bodies=(bodies := Budget()),
    )
    client.connection_made(ground)
    client.call(b"GET / HTTP/1.1\r\n\r\n", b"", cast("Any", caller))
    fed = _feed(ground, client, pieces)
    client.connection_lost(None)
    assert len(caller.answers) == 1
    assert bodies.held == 0
    if isinstance(caller.answers[0], tuple):
        assert b"\r\n\r\n" not in caller.answers[0][1]
        assert all(
            b"\r" not in line and b"\n" not in line for line in caller.answers[0][1].split(b"\r\n")
        )
    _bounded(share, ground, [caller], fed)
    return caller.answers[0]


@target(
    "controller.routing.readiness",
    seeds=[b'HTTP/1.1 503 No\r\n\r\n{"error": "no version of model \'m\' is ready: version 1: junk"}', b'\r\n\r\n{"error": 1}', b"\r\n\r\n[[1e999"],
    words=["\r\n\r\n", '{"error": "', " is ready: ", " can be loaded: ", '"}', "\\u001b", "\u202e", "[" * 2000],
)  # fmt: skip
def replica_excuse(data: bytes) -> None:
    """Whatever a replica says of why it cannot answer is a line that may be shown, and no long
    one.
    """
    found = parse_refusal(data)
    assert len(found.why) <= 500
    assert found.why.isprintable()
    assert found.why or not found.load_failed


@target(
    "gateway.fronts", "net.http2.grpc_timeout",
    seeds=[b":path\n/a\ngrpc-timeout\n1S\nauthorization\nBearer x", b"grpc-timeout\n99999999n", b"grpc-timeout\n-1S", b"te\ntrailers\n:authority\nx"],
    words=["grpc-timeout", "\n", "authorization", "Bearer ", "m", "\u00b2", "cloudml-release"],
)  # fmt: skip
def call_head(data: bytes) -> None:
    """A head is understood or refused; the replica gets no token of it."""
    words = data.split(b"\n")
    fields = [(b"content-type", b"application/grpc"), *zip(words[::2], words[1::2], strict=False)]
    nobody = cast("Any", None)
    head = GrpcFront(nobody, nobody, nobody).understand(fields)
    assert b"authorization" not in head.block or any(
        b"authorization" in b"".join(each) for each in fields if each[0] != b"authorization"
    )
    assert head.timeout_s >= 0
    assert (
        not head.release_name or (b"cloudml-release", head.release_name.encode("latin-1")) in fields
    )


@target(
    "net.http2.http_requests",
    seeds=[b":method\nPOST\n:scheme\nhttp\n:path\n/v1/models/m:predict?a=b\n:authority\nh\nx-a\n1\nx-a\n2\ncookie\na\ncookie\nb",
           b":method\nGET\n:scheme\nhttp\n:path\n/a b\ncontent-length\n5\nauthorization\nBearer x", b":method\nOPTIONS\n:scheme\nhttp\n:path\n*",
           b":method\nGET / HTTP/1.1\n:scheme\nhttp\n:path\n/\naccept\n\x0b", b":method\nHEAD\n:scheme\nhttp\n:path\n/\ncontent-encoding\nx-gzip\nexpect\nx"],
    words=[":method", ":path", ":authority", "content-length", "transfer-encoding", "chunked", "host", "connection", "\n", " HTTP/1.1", "\r", "\xa0", "\t"],
)  # fmt: skip
def rest_head_over_http2(data: bytes) -> None:
    """What a replica gets of a request over HTTP/2 is read as one head of HTTP/1.1, of the same
    method and target.
    """
    words = data.split(b"\n")
    fields = list(zip(words[::2], words[1::2], strict=False))
    if is_malformed(fields):
        return
    nobody = cast("Any", None)
    request = HttpOverHttp2(
        RestFront(nobody, nobody, Cors(())), Limits(), nobody, nobody
    ).understand(fields)
    if request.refusal is not None or request.meaning is None:
        return
    written = request.meaning.lines + b"Content-Length: 0\r\n\r\n"
    assert written.count(b"\r\n\r\n") == 1
    head = read_head(written)
    given = dict(fields)
    assert head.target.encode() == given[b":path"]
    assert head.method.encode() == (b"GET" if given[b":method"] == b"HEAD" else given[b":method"])
    assert head.length == 0
    assert head.fields["host"] == "replica"
    assert {name.encode() for name in head.fields} <= {*given, b"host", b"content-length"}
    assert "authorization" not in head.fields
