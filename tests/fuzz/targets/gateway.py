"""What the gateway reads: tokens and requests of callers, answers of replicas, which run code of tenants."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from cloud_ml.auth.tokens import derived_key, make_token
from cloud_ml.controller.answering import excuse
from cloud_ml.domain.services.routes import CallingKey
from cloud_ml.gateway.access import Access, bearer
from cloud_ml.gateway.fronts import GrpcFront
from cloud_ml.gateway.http1 import Http1Client
from cloud_ml.gateway.http2 import ClientLimits, Http2Client
from cloud_ml.serving.http2 import frames
from cloud_ml.serving.turns import Turns
from fuzz.harness import cuts, target

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
GOOD = make_token("AK.fuzz", "a secret", datetime.fromtimestamp(NOW.timestamp() + 60, UTC))


@target(
    "auth.tokens",
    "gateway.access",
    seeds=[f"Bearer {GOOD}", f"bearer  {GOOD}", "Bearer cmt1.a.1.x", GOOD, "Basic YTpi", "Bearer " + GOOD.replace("fuzz", "fuzy")],
    words=["Bearer ", "cmt1.", ".", GOOD, "9999999999", "\u0661"],
)  # fmt: skip
def model_token(data: bytes) -> None:
    """Nothing but the token itself opens a service."""
    access = Access(3600.0, NOW.timestamp)
    access.learn({"AK.fuzz": CallingKey("mine", derived_key("a secret").hex())})
    token = bearer(data.decode("latin-1"))
    assert (access.refusal(token, "mine") is None) == (token == GOOD)
    assert access.refusal(token, "theirs") is not None


class _Ground:
    """A loop whose turns end at once, and a transport that keeps nothing."""

    def __init__(self) -> None:
        self.time = lambda: 0.0
        self.closed = False

    def call_soon(self, call: Any) -> None:
        call()

    def write(self, _data: bytes) -> None: ...

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed


class _Caller:
    """Counts what it is told: once and no more."""

    streams = False

    def __init__(self) -> None:
        self.told: list[Any] = []

    def ended(self, *parts: Any) -> None:
        self.told.append(parts)

    answered = ended
    began = piece = ended

    def failed(self, **why: bool) -> None:
        self.told.append(why)


_ANSWER = b"\x88" + frames.literal("content-type", "application/grpc")


@target(
    "gateway.http2",
    seeds=[
        frames.settings({3: 9}) + frames.frame(1, 4, 1, _ANSWER) + frames.frame(0, 0, 1, b"body") + frames.frame(1, 5, 1, b""),
        frames.settings({}) + frames.frame(1, 5, 1, _ANSWER) + frames.goaway(0, 0),
        frames.settings({}) + frames.reset(1, 7) + frames.frame(6, 0, 0, bytes(8)),
        frames.settings({4: 1, 5: 16_384}) + frames.window_update(1, 9) + frames.frame(1, 0, 1, _ANSWER[:9]) + frames.frame(9, 5, 1, _ANSWER[9:]),
        frames.settings({}) + frames.frame(1, 4, 1, b"\x08\x03100") + frames.frame(1, 5, 1, _ANSWER),
    ],
    words=["\x00\x00\x04\x08", "\x00\x00\x04\x03", "\x00\x00\x00\x04\x01", "\x88", "content-length"],
)  # fmt: skip
def replica_frames(data: bytes) -> None:
    """Whatever a replica sends, each call ends once and no more, at the latest with the connection."""
    for pieces in cuts(data):
        ground = cast("Any", _Ground())
        client = Http2Client(ClientLimits(body_bytes=1 << 16), Turns(ground), lambda _: None)
        client.connection_made(ground)
        callers = [_Caller(), _Caller()]
        for caller in callers:
            client.call(b"\x83\x86\x84", b"request", cast("Any", caller))
        for piece in pieces:
            if not ground.closed:
                client.data_received(piece)
        client.connection_lost(None)
        assert [len(caller.told) for caller in callers] == [1, 1]


@target(
    "gateway.http1",
    seeds=[b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: y\r\n\r\nabc", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\nConnection: close\r\n\r\n",
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nab", b"HTTP/2 200\r\n\r\n"],
    words=["HTTP/1.1 200 OK\r\n", "Content-Length: ", "\r\n\r\n", "Connection: close\r\n", "\n", "\x0b", "99999999999"],
)  # fmt: skip
def replica_head(data: bytes) -> None:
    """The same answer however the bytes arrive, and one for each call; no line is passed on that could be two."""
    found = set()
    for pieces in cuts(data[:2000]):
        ground, caller = cast("Any", _Ground()), _Caller()
        client = Http1Client(1 << 16, lambda _: None, lambda _: None)
        client.connection_made(ground)
        client.call(b"GET / HTTP/1.1\r\n\r\n", b"", cast("Any", caller))
        for piece in pieces:
            if not ground.closed:
                client.data_received(piece)
        client.connection_lost(None)
        assert len(caller.told) == 1
        if isinstance(caller.told[0], tuple):
            assert b"\r\n\r\n" not in caller.told[0][1]
            assert all(b"\r" not in line and b"\n" not in line for line in caller.told[0][1].split(b"\r\n"))
        found.add(str(caller.told[0]))
    assert len(found) == 1


@target(
    "controller.answering",
    seeds=[b'HTTP/1.1 503 No\r\n\r\n{"error": "no version of model \'m\' is ready: version 1: junk"}', b'\r\n\r\n{"error": 1}', b"\r\n\r\n[[1e999"],
    words=["\r\n\r\n", '{"error": "', " is ready: ", '"}', "\\u001b", "\u202e", "[" * 2000],
)  # fmt: skip
def replica_excuse(data: bytes) -> None:
    """Whatever a replica says of why it cannot answer is a line that may be shown, and no long one."""
    found = excuse(data)
    assert len(found) <= 500
    assert found.isprintable()


@target(
    "gateway.fronts",
    seeds=[b":path\n/a\ngrpc-timeout\n1S\nauthorization\nBearer x", b"grpc-timeout\n99999999n", b"grpc-timeout\n-1S", b"te\ntrailers\n:authority\nx"],
    words=["grpc-timeout", "\n", "authorization", "Bearer ", "m", "\u00b2", "cloudml-release"],
)  # fmt: skip
def call_head(data: bytes) -> None:
    """A head is understood or refused; the replica gets no token of it."""
    words = data.split(b"\n")
    fields = list(zip(words[::2], words[1::2], strict=False))
    head = GrpcFront(cast("Any", None), cast("Any", None)).understand(fields)
    assert b"authorization" not in head.block or any(
        b"authorization" in b"".join(each) for each in fields if each[0] != b"authorization"
    )
    assert head.timeout_s >= 0
    assert not head.asked or (b"cloudml-release", head.asked.encode("latin-1")) in fields
