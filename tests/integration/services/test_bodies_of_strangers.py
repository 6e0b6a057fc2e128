"""Bodies of callers without a right, and of more callers than memory has room for: a real
gateway, real sockets.
"""

from __future__ import annotations

import contextlib
import http.client
import selectors
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from cloud_ml.auth.tokens import derived_key, make_token
from cloud_ml.domain.services.routes import CallingKey, Route
from cloud_ml.net.http2 import frames
from support.gateway_process import GatewayProcess, free_port, honest_replica
from support.replica_sockets import backend, replica_folder

pytestmark = pytest.mark.timeout(300)

CONNECTIONS = 32
MIB = 1 << 20
MESSAGE_BYTES = 32 * MIB
ORGANISATION_BYTES = 48 * MIB
WAITING_S = 3.0
"""For a replica; all bodies of a test are sent sooner."""
TOKEN = make_token("AK.test", "a secret", datetime.now(UTC) + timedelta(hours=1))
Scene = tuple[GatewayProcess, int]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="gw-"))  # paths of sockets are short
    port = free_port()
    try:
        with (
            honest_replica(replica_folder(folder, "r")),
            GatewayProcess(
                folder,
                message_limit_bytes=MESSAGE_BYTES,
                organisation_bodies_bytes=ORGANISATION_BYTES,
                waiting_s=WAITING_S,
            ) as gateway,
        ):
            route = Route(port, "mine", "m/v1", backends=(backend("r"),))
            keys = {"AK.test": CallingKey("mine", derived_key("a secret").hex())}
            gateway.tell({"m": route}, keys=keys)
            yield gateway, port
    finally:
        shutil.rmtree(folder)


def http1_head(token: str) -> bytes:
    fields = [
        b"POST /v1/models/m:predict HTTP/1.1",
        b"Host: x",
        b"Content-Length: %d" % MESSAGE_BYTES,
    ]
    return b"\r\n".join([*fields, b"Authorization: Bearer " + token.encode(), b"", b""])


def http2_head(token: str, content: str = "application/grpc") -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/a.B/C",
        ":authority": "x",
        "content-type": content,
    }
    block = b"".join(frames.literal(name, value) for name, value in fields.items())
    block += frames.literal("authorization", f"Bearer {token}") if token else b""
    return frames.PREFACE + frames.settings({}) + frames.frame(frames.HEADERS, 0x4, 1, block)


def rest_over_http2_head(token: str) -> bytes:
    return http2_head(token, "application/json")


def http1_body() -> bytes:
    return bytes(MESSAGE_BYTES)


def http2_body() -> bytes:
    """As much as the first window of a stream allows."""
    return frames.frame(frames.DATA, 0, 1, bytes(MIB)) * 8


class Sender:
    """A connection that sends a body as fast as it is taken, and keeps what is answered."""

    def __init__(self, port: int, head: bytes, body: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.sendall(head)
        self.socket.setblocking(False)
        self.answer = b""
        self.over = False
        self._rest = memoryview(body)

    def step(self) -> None:
        try:
            if self._rest:
                with contextlib.suppress(BlockingIOError):
                    self._rest = self._rest[self.socket.send(self._rest[:MIB]) :]
            with contextlib.suppress(BlockingIOError):
                data = self.socket.recv(65_536)
                self.answer += data
                self.over = not data
        except ConnectionError:
            self.over = True

    @property
    def sent(self) -> bool:
        return not self._rest


def send_all(senders: list[Sender], until: Callable[[Sender], bool], seconds: float = 30.0) -> None:
    """Send on all connections until something holds for each."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for each in senders:
            selector.register(each.socket, selectors.EVENT_READ)
        while waiting := [each for each in senders if not until(each)]:
            assert time.monotonic() < deadline, [each.answer[:80] for each in waiting][:3]
            for each in waiting:
                each.step()
            selector.select(0.001)


@pytest.mark.parametrize("token", ["", "cmt1.AK.test.1.wrong"], ids=["no token", "wrong token"])
@pytest.mark.parametrize(
    ("head", "body", "answer"),
    [
        (http1_head, http1_body(), b"HTTP/1.1 401"),
        (http2_head, http2_body(), b"grpc-status\x0216"),
        (rest_over_http2_head, http2_body(), b":status\x03401"),
    ],
    ids=["http1", "grpc", "rest over http2"],
)
def test_callers_without_a_right_fill_no_memory(
    scene: Scene, token: str, head: Callable[[str], bytes], body: bytes, answer: bytes
) -> None:
    """The head is judged before the body is read: 32 connections that send 8 or 32 MiB each."""
    gateway, port = scene
    gateway.forget_peak()
    before = gateway.memory()
    senders = [Sender(port, head(token), body) for _ in range(CONNECTIONS)]
    try:
        send_all(senders, lambda each: each.over or answer in each.answer)
        assert all(answer in each.answer for each in senders)
        send_all(senders, lambda each: each.over or each.sent or head is not http1_head)
        assert gateway.memory("VmHWM") - before < 24 * MIB
        assert call(port) == 200
    finally:
        for each in senders:
            each.socket.close()


@pytest.mark.parametrize(
    ("head", "body", "refusal"),
    [
        (http1_head, http1_body()[:-1], b"HTTP/1.1 503"),
        (http2_head, http2_body(), b"grpc-status\x018"),
    ],
    ids=["http1", "grpc"],
)
def test_bodies_of_one_organisation_share_a_budget(
    scene: Scene, head: Callable[[str], bytes], body: bytes, refusal: bytes
) -> None:
    """Callers with a token whose bodies never end: who comes when it is full is refused, and it
    is free again after.
    """
    gateway, port = scene
    gateway.forget_peak()
    before = gateway.memory()
    senders = [Sender(port, head(TOKEN), body) for _ in range(CONNECTIONS)]
    try:
        send_all(senders, lambda each: each.over or each.sent or refusal in each.answer)
        send_all(senders, lambda _: any(refusal in each.answer for each in senders))
        assert gateway.memory("VmHWM") - before < 2.5 * ORGANISATION_BYTES, (
            "a body is copied once when it grows"
        )
    finally:
        for each in senders:
            each.socket.close()
    deadline = time.monotonic() + 20
    while call(port, bytes(16 * MIB)) != 200:  # both ends hear of what is closed
        assert time.monotonic() < deadline
    with grpc.insecure_channel(
        f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        answer = channel.unary_unary("/a.B/C")(
            bytes(16 * MIB), timeout=20, metadata=[("authorization", f"Bearer {TOKEN}")]
        )
    assert len(answer) == 16 * MIB


def test_a_whole_request_that_waits_counts_as_well(scene: Scene) -> None:
    """Bodies count until their calls end, and not only until they are whole."""
    gateway, _ = scene
    port = free_port()
    gateway.tell(
        {"waits": Route(port, "mine", "waits/v1", open=True, backends=(backend("nobody"),))}
    )
    try:
        body = bytes(4 * MIB)
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        senders = [Sender(port, head, body) for _ in range(CONNECTIONS)]
        send_all(senders, lambda each: bool(each.answer) or each.over, seconds=60)
        answers = [each.answer.split(b"\r\n\r\n")[-1] for each in senders]
        assert sum(
            b"too many requests" in each for each in answers
        ) >= CONNECTIONS - ORGANISATION_BYTES // len(body)
        assert sum(b"no replica" in each for each in answers) >= 2
        for each in senders:
            each.socket.close()
    finally:
        gateway.tell({}, drop=("waits",))


def unread_http1(port: int) -> Sender:
    """A caller that asks for 8 MiB and reads little of it."""
    head = http1_head(TOKEN).replace(
        b"Content-Length: %d" % MESSAGE_BYTES, b"Content-Length: %d" % (8 * MIB)
    )
    sender = Sender(port, head, bytes(8 * MIB))
    send_all([sender], lambda each: each.over or b"\r\n\r\n" in each.answer)
    return sender


def unread_grpc(port: int) -> Sender:
    """The same, with a window of nothing."""
    closed = frames.settings({frames.INITIAL_WINDOW_SIZE: 0})
    body = frames.frame(frames.DATA, 0, 1, bytes(MIB)) * 7 + frames.frame(
        frames.DATA, 1, 1, bytes(MIB)
    )
    sender = Sender(port, http2_head(TOKEN).replace(frames.settings({}), closed, 1), body)
    send_all([sender], lambda each: each.over or b"application/grpc" in each.answer)
    return sender


@pytest.mark.parametrize(
    ("ask", "refusal"),
    [(unread_http1, b"HTTP/1.1 503"), (unread_grpc, b"grpc-status\x018")],
    ids=["http1", "grpc"],
)
def test_answers_that_callers_do_not_read_count_as_well(
    scene: Scene, ask: Callable[[int], Sender], refusal: bytes
) -> None:
    """A tenant whose callers and replica work together cannot fill memory with answers."""
    gateway, port = scene
    gateway.forget_peak()
    before = gateway.memory()
    senders: list[Sender] = []
    try:
        while not senders or refusal not in senders[-1].answer:
            assert len(senders) < CONNECTIONS
            senders.append(ask(port))
        assert len(senders) > 4
        assert gateway.memory("VmHWM") - before < 2.5 * ORGANISATION_BYTES
    finally:
        for each in senders:
            each.socket.close()
    deadline = time.monotonic() + 20
    while call(port, bytes(16 * MIB)) != 200:
        assert time.monotonic() < deadline


def call(port: int, body: bytes = b"{}") -> int:
    """The status of a call with a token."""
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    ) as connection:
        try:
            connection.request(
                "POST", "/v1/models/m:predict", body, {"Authorization": f"Bearer {TOKEN}"}
            )
        except ConnectionError:
            return 0  # refused while it sends
        answer = connection.getresponse()
        answer.read()
        return answer.status
