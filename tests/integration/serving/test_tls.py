"""TLS on the one port: gRPC and HTTP/1.1, and clients that need a certificate."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import grpc
import numpy as np
import pytest

from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.tls import tls_context
from support.http2 import Http2Client
from support.serving import PREDICT, Running, model_server, predict, predict_request, save_linear

pytestmark = [
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="there is no openssl to make a certificate"
    ),
    pytest.mark.xdist_group("model-server-tls"),
]


def certificate(folder: Path, name: str) -> tuple[str, str]:
    """A key and a certificate that is its own authority."""
    key, made = folder / f"{name}.key", folder / f"{name}.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    subject = [
        "-days",
        "1",
        "-subj",
        f"/CN={name}",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
    ]
    subprocess.run(
        [*command, "-keyout", key, "-out", made, *subject], check=True, capture_output=True
    )
    return key.read_text(), made.read_text()


def document(**fields: object) -> str:
    """An ``SSLConfig`` as text."""
    quoted = (f"{name}: {_quoted(value)}" for name, value in fields.items())
    return "\n".join(quoted)


def _quoted(value: object) -> str:
    return '"' + value.replace("\n", "\\n") + '"' if isinstance(value, str) else str(value).lower()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("tls")
    return {name: certificate(folder, name) for name in ("server", "client", "stranger")}


@pytest.fixture(scope="module")
def mutual(
    tmp_path_factory: pytest.TempPathFactory, pairs: dict[str, tuple[str, str]]
) -> Iterator[Running]:
    """A server that knows its clients."""
    base = tmp_path_factory.mktemp("mutual")
    save_linear(base / "linear" / "1")
    (key, made), (_, client) = pairs["server"], pairs["client"]
    config = base / "ssl.config"
    config.write_text(
        document(server_key=key, server_cert=made, custom_ca=client, client_verify=True)
    )
    flags = (
        "--model_name",
        "linear",
        "--model_base_path",
        str(base / "linear"),
        "--ssl_config_file",
        str(config),
    )
    with model_server(*flags) as running:
        yield running


@contextlib.contextmanager
def connected(
    running: Running, pairs: dict[str, tuple[str, str]], who: str
) -> Iterator[grpc.Channel]:
    key, made = (each.encode() for each in pairs[who])
    credentials = grpc.ssl_channel_credentials(pairs["server"][1].encode(), key, made)
    with grpc.secure_channel(f"localhost:{running.port}", credentials) as channel:
        yield channel


def ask(running: Running, pairs: dict[str, tuple[str, str]], who: str) -> bytes:
    with connected(running, pairs, who) as channel:
        answer: bytes = channel.unary_unary(PREDICT)(
            predict_request(x=[1.0]).SerializeToString(), timeout=60
        )
        return answer


def test_who_has_the_right_certificate_is_answered(
    mutual: Running, pairs: dict[str, tuple[str, str]]
) -> None:
    assert b"serving_default" in ask(mutual, pairs, "client")
    with pytest.raises(grpc.RpcError) as caught:
        ask(mutual, pairs, "stranger")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_long_messages_come_whole(mutual: Running, pairs: dict[str, tuple[str, str]]) -> None:
    """They are read straight from what was deciphered to where the model takes them."""
    numbers = np.arange(300_000, dtype=np.float32)
    with connected(mutual, pairs, "client") as channel:
        for size in (len(numbers), 3, 100_000, len(numbers)):
            (answer,) = predict(channel, predict_request(x=numbers[:size]), timeout=20).values()
            np.testing.assert_array_equal(answer, numbers[:size] * 2 + 10)


def test_a_caller_that_offers_http_2_and_speaks_http_1_is_understood(
    mutual: Running, pairs: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "client.pem").write_text("\n".join(pairs["client"]))
    context = ssl.create_default_context(cadata=pairs["server"][1])
    context.load_cert_chain(tmp_path / "client.pem")
    context.set_alpn_protocols(["h2", "http/1.1"])
    connection = HTTPSConnection("localhost", mutual.port, context=context, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/models/linear:predict", b'{"instances": [1.0]}')
        assert connection.sock.selected_alpn_protocol() == "h2"
        assert json.load(connection.getresponse()) == {"predictions": [12.0]}


def test_rest_over_http_2(
    mutual: Running, pairs: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "client.pem").write_text("\n".join(pairs["client"]))
    context = ssl.create_default_context(cadata=pairs["server"][1])
    context.load_cert_chain(tmp_path / "client.pem")
    context.set_alpn_protocols(["http/1.1", "h2"])
    with Http2Client("localhost", mutual.port, context) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.selected_alpn_protocol() == "h2"
        assert client.ask("POST", "/v1/models/linear:predict", {"instances": [1.0]}).document == {
            "predictions": [12.0]
        }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "needs server_key and server_cert"),
        ({"server_key": "secret", "server_cert": "x"}, "no PEM or they do not match"),
        (
            {"server_key": "secret", "server_cert": "x", "client_verify": True},
            "client_verify and no custom_ca",
        ),
        ({"server_kez": "secret"}, "is no SSLConfig, line 1"),
    ],
)
def test_a_mistake_is_told_without_the_key(
    tmp_path: Path, fields: dict[str, object], words: str
) -> None:
    (tmp_path / "ssl.config").write_text(document(**fields))
    with pytest.raises(BadRequest) as caught:
        tls_context(tmp_path / "ssl.config")
    assert words in caught.value.message
    assert "secret" not in caught.value.message


def test_a_server_without_a_readable_file_does_not_start(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "cloud_ml.serving",
        "--model_base_path",
        "/x",
        "--ssl_config_file",
        "/none",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--ssl_config_file: /none cannot be read" in done.stderr
