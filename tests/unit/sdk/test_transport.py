from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cloud_ml.aio.transport import AsyncTransport
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import (
    CloudMlError,
    Conflict,
    InvalidRequest,
    NotFound,
    SeenBefore,
    TransportError,
    Unauthenticated,
    Unavailable,
)
from cloud_ml.sdk.config import Credentials
from cloud_ml.sdk.endpoint import parse_endpoint
from cloud_ml.sdk.failures import AlreadyCarriedOut, AlreadyDeleted
from cloud_ml.sdk.messages import FileBody, Request
from cloud_ml.sdk.retries import RetryPolicy
from cloud_ml.sdk.storage.transfers import file_body
from cloud_ml.sdk.transport import Transport
from support.awaiting import event_loop
from support.fake_server import (
    ACCESS_KEY,
    SECRET_KEY,
    FakeServer,
    Reply,
    Seen,
    json_reply,
    refusal,
    serving,
)

Connect = Callable[..., Transport]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(lambda seen: json_reply({"path": seen.path, "query": seen.query})) as fake:
        yield fake


@pytest.fixture
def naps() -> list[float]:
    return []


@pytest.fixture(params=["blocking", "awaiting"])
def face(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def connect(face: str, naps: list[float]) -> Iterator[Connect]:
    """Makes transports of each face in turn: a test holds for both."""
    policy = RetryPolicy(attempts=3, first_s=1.0)

    async def nap(delay_s: float) -> None:
        naps.append(delay_s)

    with ExitStack() as stack:
        loop = stack.enter_context(event_loop()) if face == "awaiting" else None

        def make(endpoint: str, secret: str = SECRET_KEY) -> Transport:
            where, credentials = parse_endpoint(endpoint), Credentials(ACCESS_KEY, secret)
            if loop is None:
                transport = Transport(where, credentials, retry=policy, sleep=naps.append)
            else:
                transport = loop.make(
                    lambda: AsyncTransport(where, credentials, retry=policy, sleep=nap)
                )
            stack.callback(transport.close)
            return transport

        yield make


@pytest.fixture
def transport(server: FakeServer, connect: Connect) -> Transport:
    return connect(server.endpoint)


@dataclass
class RawServer:
    """``hung_up`` is released after each connection that was closed."""

    address: str
    hung_up: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


@contextmanager
def raw_server(*answers: bytes) -> Iterator[RawServer]:
    """Says each answer to one connection, whatever it is asked, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        server = RawServer(f"127.0.0.1:{listener.getsockname()[1]}")

        def run() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)
                server.hung_up.release()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield server
        thread.join(60)


def test_requests_are_signed_whatever_their_path_and_query(
    transport: Transport, server: FakeServer
) -> None:
    query = {"b": "x y&=ü", "a": 1, "yes": True, "no": False, "none": None, "empty": ""}
    document = transport.json(Request("GET", "/a%2Fb//c%20d", query=query))
    assert document == {"path": "/a/b//c d", "query": {"b": "x y&=ü", "a": "1", "yes": "true"}}
    assert server.bad_signatures == []


def test_the_prefix_of_the_endpoint_is_part_of_what_is_signed(
    server: FakeServer, connect: Connect
) -> None:
    transport = connect(server.endpoint + "/ml/")
    assert transport.json(Request("GET", "/api"))["path"] == "/ml/api"


def test_one_connection_serves_many_requests(transport: Transport, server: FakeServer) -> None:
    for _ in range(5):
        transport.json(Request("GET", "/"))
    assert server.connections == 1


def test_an_answer_that_was_not_read_to_its_end_costs_its_connection(
    transport: Transport, server: FakeServer
) -> None:
    server.queued.append(Reply(200, [b"a" * 100_000, b"b" * 100_000]))
    with transport.send(Request("GET", "/")) as answer:
        assert answer.read_some()
    assert transport.json(Request("GET", "/after"))["path"] == "/after"
    assert server.connections == 2


def test_threads_share_a_transport(transport: Transport, server: FakeServer) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = [f"/{i}" for i in range(40)]
        found = [
            answer["path"]
            for answer in pool.map(lambda path: transport.json(Request("GET", path)), paths)
        ]
    assert found == paths
    assert server.connections <= 8


def test_a_connection_that_the_server_closed_meanwhile_is_not_used(
    naps: list[float], connect: Connect
) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"  # promises to stay, and hangs up
    with raw_server(answer, answer) as raw:
        transport = connect(f"http://{raw.address}")
        for _ in range(2):
            assert transport.json(Request("POST", "/")) == {}
            assert raw.hung_up.acquire(timeout=60)
    assert naps == []


def test_chunks_are_given_as_they_arrive(transport: Transport, server: FakeServer) -> None:
    seen_first = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield b"first"
        assert seen_first.wait(60)
        yield b"second"

    server.queued.append(Reply(200, chunks()))
    with transport.send(Request("GET", "/")) as answer:
        assert answer.read_some() == b"first"
        seen_first.set()
        assert answer.read_some() == b"second"
        assert answer.read_some() == b""


def test_a_stream_that_breaks_off_is_not_taken_for_its_end(
    transport: Transport, server: FakeServer
) -> None:
    server.queued.append(Reply(200, [b"one"], cut=True))
    with transport.send(Request("GET", "/")) as answer:
        assert answer.read_some() == b"one"
        with pytest.raises(TransportError, match="broke off"):
            answer.read_some()


def test_a_body_that_is_shorter_than_promised_is_noticed(connect: Connect) -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}") as raw:
        transport = connect(f"http://{raw.address}")
        with (
            transport.send(Request("GET", "/")) as answer,
            pytest.raises(TransportError, match="broke off"),
        ):
            answer.read()


def test_refusals_become_the_errors_that_they_are(
    transport: Transport, server: FakeServer, naps: list[float]
) -> None:
    server.queued += [
        refusal(NotFound("no such job", field="job_name"), 404),
        refusal(Conflict("ended"), 409),
    ]
    with pytest.raises(NotFound, match="no such job"):
        transport.json(Request("GET", "/"))
    with pytest.raises(Conflict, match="ended"):
        transport.json(Request("POST", "/"))
    assert naps == []
    assert server.connections == 1


def test_a_wrong_secret_is_said_to_be_wrong(server: FakeServer, connect: Connect) -> None:
    with pytest.raises(Unauthenticated, match="signature is wrong"):
        connect(server.endpoint, secret="other").json(Request("GET", "/"))


def test_busy_servers_are_asked_again(
    transport: Transport, server: FakeServer, naps: list[float]
) -> None:
    server.queued += [Reply(503, b"", {"retry-after": "4"}), Reply(502, b"<html>")]
    assert transport.json(Request("GET", "/x"))["path"] == "/x"
    assert naps[0] == 4.0
    assert 1.0 <= naps[1] <= 2.0


def test_patience_ends_with_the_last_answer(
    transport: Transport, server: FakeServer, naps: list[float]
) -> None:
    server.queued += [refusal(Unavailable(f"try {i}"), 503) for i in range(3)]
    with pytest.raises(Unavailable, match="try 2"):
        transport.json(Request("GET", "/"))
    assert len(naps) == 2


def test_what_may_not_be_repeated_is_sent_once(
    transport: Transport, server: FakeServer, naps: list[float]
) -> None:
    server.queued.append(refusal(Unavailable("busy"), 503))
    with pytest.raises(Unavailable):
        transport.json(Request("POST", "/"))
    assert naps == []


def test_each_retry_signs_again_and_keeps_its_idempotency_key(
    transport: Transport, server: FakeServer
) -> None:
    server.queued.append(Reply(503))
    transport.json(Request("POST", "/", body=b"{}", idempotency_key="same"))
    first, second = server.seen
    assert first.headers["x-cloudml-nonce"] != second.headers["x-cloudml-nonce"]
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == "same"
    assert first.body == second.body == b"{}"


def test_a_lost_answer_is_asked_for_again(connect: Connect) -> None:
    with raw_server(b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}") as raw:
        assert (
            connect(f"http://{raw.address}").json(Request("POST", "/", idempotency_key="k")) == {}
        )
    with raw_server(b"") as raw, pytest.raises(TransportError, match="without an answer"):
        connect(f"http://{raw.address}").json(Request("POST", "/"))


_GONE = b'{"error": true, "code": "not_found", "message": "there is no job j", "field": "job_name"}'
GONE = (
    b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    % (len(_GONE), _GONE)
)
BAD_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"
THERE = b'HTTP/1.1 200 OK\r\netag: "e"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n'
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("first", [b"", BAD_GATEWAY])
def test_what_is_gone_after_a_lost_answer_may_be_ones_own_doing(
    first: bytes, connect: Connect
) -> None:
    with (
        raw_server(first, GONE) as raw,
        pytest.raises(AlreadyDeleted, match="there is no job j") as caught,
    ):
        connect(f"http://{raw.address}").json(Request("DELETE", "/"))
    assert caught.value.hint == "an earlier try, whose answer was lost, may have deleted it"


@pytest.mark.parametrize(
    ("method", "answers"), [("DELETE", (GONE,)), ("DELETE", (BUSY, GONE)), ("GET", (b"", GONE))]
)
def test_what_is_gone_otherwise_was_not_there(
    method: str, answers: tuple[bytes, ...], connect: Connect
) -> None:
    with raw_server(*answers) as raw, pytest.raises(NotFound) as caught:
        connect(f"http://{raw.address}").json(Request(method, "/"))
    assert not isinstance(caught.value, AlreadyDeleted)


@pytest.mark.parametrize(
    ("method", "error"), [("DELETE", AlreadyDeleted), ("PUT", AlreadyCarriedOut)]
)
def test_a_nonce_that_an_earlier_try_has_used_tells_that_it_was_carried_out(
    method: str, error: type[CloudMlError], transport: Transport, server: FakeServer
) -> None:
    """A server whose database goes away while it commits answers 503."""
    server.queued += [
        refusal(Unavailable("the database went away"), 503),
        refusal(SeenBefore("this very request was made before"), 401),
    ]
    with pytest.raises(error):
        transport.json(Request(method, "/"))
    first, second = server.seen
    assert first.headers["x-cloudml-nonce"] == second.headers["x-cloudml-nonce"]


def test_a_nonce_that_another_request_has_used_is_refused(
    transport: Transport, server: FakeServer
) -> None:
    seen = refusal(SeenBefore("this very request was made before"), 401)
    server.queued += [seen, refusal(Unavailable("busy"), 503), seen]
    with pytest.raises(SeenBefore):
        transport.json(Request("DELETE", "/"))
    with pytest.raises(SeenBefore):  # each try has a nonce of its own
        transport.json(Request("POST", "/", idempotency_key="k"))


def test_a_lost_answer_to_delete_and_cancel_is_no_failure() -> None:
    with (
        raw_server(THERE, b"", GONE, b"", GONE) as raw,
        CloudMlClient(ACCESS_KEY, SECRET_KEY, f"http://{raw.address}") as one,
    ):
        one._transport.sleep = lambda _: None
        one.storage.delete("fds://bucket/k")
        assert one.delete_train_job("j").deleting
    with (
        raw_server(b"", GONE) as raw,
        CloudMlClient(ACCESS_KEY, SECRET_KEY, f"http://{raw.address}") as one,
    ):
        one._transport.sleep = lambda _: None
        with pytest.raises(NotFound):  # whose job it was that is gone, a cancel does not know
            one.cancel_train_job("j")


def test_nobody_there(naps: list[float], connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TransportError, match="nothing listens") as caught:
        connect(f"http://127.0.0.1:{port}").json(Request("POST", "/"))
    assert "cloudml server" in (caught.value.hint or "")
    assert len(naps) == 2


def test_a_silent_server_is_given_up(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(TransportError, match=r"did not answer within 0\.05 s"):
            transport.json(Request("POST", "/", read_timeout_s=0.05))


def test_https_to_a_plain_server(server: FakeServer, naps: list[float], connect: Connect) -> None:
    with pytest.raises(TransportError, match="agree on TLS") as caught:
        connect(server.endpoint.replace("http://", "https://")).json(Request("GET", "/"))
    assert "http://" in (caught.value.hint or "")
    assert naps == []


def test_plain_http_to_a_tls_server(connect: Connect) -> None:
    alert = b"\x15\x03\x01\x00\x02\x02\x16"
    with raw_server(alert) as raw, pytest.raises(TransportError) as caught:
        connect(f"http://{raw.address}").json(Request("GET", "/"))
    assert "https://" in (caught.value.hint or "")


def test_an_answer_that_is_no_json(transport: Transport, server: FakeServer) -> None:
    server.queued.append(Reply(200, b"<html>hello</html>", {"content-type": "text/html"}))
    with pytest.raises(TransportError, match="instead of JSON"):
        transport.json(Request("GET", "/"))


@pytest.mark.parametrize("face", ["blocking"])  # the awaiting face sends files by this one
def test_files_are_sent_block_by_block_and_again_for_a_retry(
    transport: Transport, server: FakeServer, tmp_path: Path
) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(range(256)) * 1000)
    server.queued.append(Reply(503))
    transport.json(Request("PUT", "/data", body=file_body(file)))
    assert [seen.body for seen in server.seen] == [file.read_bytes()] * 2
    assert server.bad_signatures == []


@pytest.mark.parametrize("face", ["blocking"])  # the awaiting face sends files by this one
def test_a_file_that_changes_is_refused_by_the_server_or_before(
    transport: Transport, server: FakeServer, tmp_path: Path
) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"before")
    body = file_body(file)
    file.write_bytes(b"behind, and longer")
    with pytest.raises(Unauthenticated):
        transport.json(Request("PUT", "/", body=body))
    file.write_bytes(b"bef")
    with pytest.raises(InvalidRequest, match="changed while it was sent"):
        transport.json(Request("PUT", "/", body=body))
    file.unlink()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        transport.json(Request("PUT", "/", body=body))


def test_an_upload_that_is_refused_early_gives_the_reason(
    connect: Connect, face: str, tmp_path: Path
) -> None:
    """The server answers and hangs up before it has read the body: the answer counts, not the
    broken pipe.
    """
    file = tmp_path / "big"
    file.write_bytes(bytes(20_000_000))
    text = b'{"error": true, "code": "too_large", "message": "at most 1 MB"}'
    answer = b"HTTP/1.1 413 X\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (
        len(text),
        text,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1_000_000):
                    pass

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        transport = connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(Exception, match="at most 1 MB") as caught:
            transport.json(
                Request(
                    "PUT", "/", body=file.read_bytes() if face == "awaiting" else file_body(file)
                )
            )
        thread.join()
    assert type(caught.value).__name__ == "TooLarge"


def test_a_body_of_a_file_is_exactly_as_long_as_was_signed(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"0123456789")
    assert b"".join(FileBody(file, 4, "").blocks()) == b"0123"


def test_seen_requests_carry_no_secret(transport: Transport, server: FakeServer) -> None:
    transport.json(Request("GET", "/"))
    seen: Seen = server.seen[0]
    assert SECRET_KEY not in str(seen)
