"""What a gateway lets in by a setting: probes without a token, and pages of other origins."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cloud_ml.net.http2 import frames
from cloud_ml.serving.protos import message
from integration.serving.test_rest import PREDICT
from support.gateway_front import gateway_before, replica, replica_socket
from support.http2 import Http2Client
from support.serving import call, predict, predict_request, save_linear

APP = "https://app.example.com"
PREFLIGHT = {"Origin": APP, "Access-Control-Request-Method": "POST"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("replica")
    save_linear(made / "linear" / "1")
    bounds = ("--http2_max_streams=5", "--http2_window_bytes=80000")
    with replica(
        made, "--model_name", "linear", "--model_base_path", str(made / "linear"), *bounds
    ):
        yield made


def ask(
    port: int,
    method: str,
    path: str,
    fields: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, fields or {})
    found = connection.getresponse()
    content = found.read()
    connection.close()
    return found.status, content, found.headers


def health(port: int, method: str) -> str:
    """The status of a call of gRPC without a token."""
    service, _, name = method.rpartition("/")
    package = service.rpartition(".")[0].lstrip("/")
    kinds = (
        ("HealthCheckRequest", "HealthCheckResponse")
        if name == "Check"
        else (f"{name}Request", f"{name}Response")
    )
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            call(channel, method, message(f"{package}.{kinds[0]}")(), f"{package}.{kinds[1]}")
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


PATHS = ("/v2/health/live", "/v2/health/ready", "/ping")
METHODS = (
    "/grpc.health.v1.Health/Check",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
)


def test_a_body_behind_an_oversized_head_is_dropped_up_to_the_setting(folder: Path) -> None:
    fields = {"X": "x" * 20_000}
    with gateway_before(folder, caller_dropped_body_bytes=10) as port:
        kept = ask(port, "POST", PREDICT, fields, bytes(10))
        ended = ask(port, "POST", PREDICT, fields, bytes(11))
    assert (kept[0], kept[2]["Connection"]) == (431, None)
    assert (ended[0], ended[2]["Connection"]) == (431, "close")


def announced(connection: socket.socket) -> dict[int, int]:
    """The SETTINGS that a server of HTTP/2 sends first."""
    connection.settimeout(60)
    connection.sendall(frames.PREFACE + frames.settings({}))
    with connection.makefile("rb") as file:
        high, low, kind, _, _ = frames.HEAD.unpack(file.read(9))
        assert kind == frames.SETTINGS
        return dict(frames.SETTING.iter_unpack(file.read(high << 8 | low)))


def test_windows_and_streams_of_callers_are_settings_of_the_gateway(folder: Path) -> None:
    with (
        gateway_before(folder, caller_http2_streams=7, caller_http2_window_bytes=70_000) as port,
        socket.create_connection(("127.0.0.1", port)) as connection,
    ):
        found = announced(connection)
    assert (found[frames.MAX_CONCURRENT_STREAMS], found[frames.INITIAL_WINDOW_SIZE]) == (7, 70_000)


def test_windows_and_streams_of_callers_are_flags_of_the_model_server(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(replica_socket(folder)))
        found = announced(connection)
    assert (found[frames.MAX_CONCURRENT_STREAMS], found[frames.INITIAL_WINDOW_SIZE]) == (5, 80_000)


def test_a_caller_that_asks_nothing_is_hung_up_on_after_the_time_of_the_setting(
    folder: Path,
) -> None:
    with gateway_before(folder, caller_http1_idle_s=1, caller_http2_idle_s=1) as port:
        for begun in (
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
            frames.PREFACE + frames.settings({}),
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(begun)
                with connection.makefile("rb") as file:
                    assert file.read(), "it is answered, and ends; by default it stays for minutes"


def test_a_caller_that_says_nothing_is_hung_up_on_after_the_time_of_the_setting(
    folder: Path,
) -> None:
    with (
        gateway_before(folder, caller_greeting_s=1) as port,
        socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
    ):
        assert connection.recv(1) == b"", "by default it stays for half a minute"


def test_calls_on_one_connection_are_read_up_to_the_setting_and_all_answered(folder: Path) -> None:
    one = b"GET /v1/models/linear HTTP/1.1\r\nHost: x\r\n\r\n"
    last = one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with (
        gateway_before(folder, caller_http1_pipelined=1) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
    ):
        connection.sendall(9 * one + last)
        with connection.makefile("rb") as file:
            assert file.read().count(b"HTTP/1.1 200 OK") == 10


def test_probes_need_a_token_as_anybody(folder: Path) -> None:
    with gateway_before(folder, tokens=True) as port:
        assert [ask(port, "GET", path)[0] for path in PATHS] == [401] * 3
        assert [health(port, method) for method in METHODS] == ["UNAUTHENTICATED"] * 3


def test_probes_are_answered_without_one_where_the_setting_says_so_and_nothing_else_is(
    folder: Path,
) -> None:
    with gateway_before(folder, tokens=True, open_health=True) as port:
        assert [ask(port, "GET", path)[0] for path in PATHS] == [200] * 3
        assert ask(port, "GET", "/v2/health/ready?a=b")[1] == b'{"ready":true}'
        assert [health(port, method) for method in METHODS] == ["OK"] * 3
        with Http2Client("127.0.0.1", port) as client:
            assert client.ask("GET", "/v2/health/live").document == {"live": True}
            assert client.ask("GET", "/v2/models/linear/ready").status == 401
        for method, path in (
            ("POST", "/v2/health/live"), ("GET", "/v2/health/live/"), ("GET", "/v2/health/../models/linear"),
            ("GET", "/V2/health/live"), ("GET", "/v2/models/linear/ready"), ("GET", "/metrics"), ("GET", "//ping"),
            ("POST", "/ping"), ("GET", "/pingx"), ("POST", PREDICT),
        ):  # fmt: skip
            assert ask(port, method, path)[0] == 401, (method, path)
        assert health(port, "/inference.GRPCInferenceService/ServerMetadata") == "UNAUTHENTICATED"
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                predict(channel, predict_request(x=[1.0]))
            watched = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=60)
            with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                next(watched)


def test_pages_of_other_origins_are_let_in_by_the_setting_only(folder: Path) -> None:
    with gateway_before(folder, tokens=True) as port:
        status, _, fields = ask(port, "OPTIONS", PREDICT, PREFLIGHT)
        assert (status, fields["Access-Control-Allow-Origin"]) == (401, None)
    with gateway_before(folder, tokens=True, cors_origins=f"{APP},http://localhost:3000") as port:
        status, _, fields = ask(port, "OPTIONS", PREDICT, PREFLIGHT)
        assert (status, fields["Access-Control-Allow-Origin"]) == (200, APP)
        assert "authorization" in fields["Access-Control-Allow-Headers"]
        status, _, fields = ask(port, "POST", PREDICT, {"Origin": APP}, b"{}")
        assert (status, fields["Access-Control-Allow-Origin"]) == (401, APP), (
            "the page reads why it is refused"
        )
        status, _, fields = ask(
            port, "OPTIONS", PREDICT, PREFLIGHT | {"Origin": "https://evil.example.com"}
        )
        assert (status, fields["Access-Control-Allow-Origin"]) == (401, None)
    with gateway_before(folder, cors_origins="*") as port:
        status, body, fields = ask(port, "POST", PREDICT, {"Origin": APP}, b'{"instances": [1]}')
        assert (status, body, fields["Access-Control-Allow-Origin"]) == (
            200,
            b'{"predictions":[12.0]}',
            "*",
        )
        with Http2Client("127.0.0.1", port) as client:
            answer = client.ask("POST", PREDICT, {"instances": [1]}, origin=APP)
            assert answer.fields["access-control-allow-origin"] == "*"
