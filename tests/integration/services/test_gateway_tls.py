"""Services over TLS: gRPC and HTTP by clients that check the certificate, and a renewal under
load.
"""

from __future__ import annotations

import contextlib
import http.client
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from support.calling import Load, over_grpc, over_http, token_of
from support.http2 import Http2Client
from support.server import RealServer, eventually, serving
from support.services import ServiceApi, running
from support.serving import save_linear

pytestmark = [
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="there is no openssl to make a certificate"
    ),
    pytest.mark.xdist_group("gateway"),
]


def make_authority(folder: Path) -> None:
    """An authority that callers trust: ``authority.pem`` and its key."""
    _openssl(
        "req",
        "-x509",
        *_KEY,
        "-days",
        "2",
        "-subj",
        "/CN=authority",
        folder=folder,
        name="authority",
    )


def make_certificate(folder: Path, serial: int) -> None:
    """A new ``services.pem`` and ``services.key``; as a renewal writes them, one after the
    other.
    """
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    signed = [
        "-CA",
        str(folder / "authority.pem"),
        "-CAkey",
        str(folder / "authority.key"),
        "-set_serial",
        str(serial),
    ]
    _openssl(
        "req",
        "-x509",
        *_KEY,
        *signed,
        "-days",
        "1",
        "-subj",
        "/CN=services",
        "-addext",
        names,
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        folder=folder,
        name="new",
    )
    for ending in ("key", "pem"):
        (folder / f"new.{ending}").replace(folder / f"services.{ending}")


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str, folder: Path, name: str) -> None:
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    subprocess.run(["openssl", *arguments, *files], check=True, capture_output=True)


@dataclass
class Served:
    server: RealServer
    folder: Path
    address: str
    token: str

    def connection(self) -> http.client.HTTPSConnection:
        trust = ssl.create_default_context(cafile=str(self.folder / "authority.pem"))
        return http.client.HTTPSConnection(self.address, timeout=60, context=trust)

    def channel(self) -> grpc.Channel:
        trust = grpc.ssl_channel_credentials((self.folder / "authority.pem").read_bytes())
        return grpc.secure_channel(
            self.address, trust, options=[("grpc.use_local_subchannel_pool", 1)]
        )

    def serial(self) -> int:
        """Of the certificate that a caller is shown."""
        host, port = self.address.split(":")
        shown = ssl.get_server_certificate((host, int(port)), timeout=60)
        certificate = subprocess.run(
            ["openssl", "x509", "-noout", "-serial"],
            input=shown,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(certificate.stdout.partition("=")[2], 16)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder)
    make_certificate(folder, 1001)
    settings = {"CERT": folder / "services.pem", "KEY": folder / "services.key"}
    with serving(
        tmp_path_factory.mktemp("server"),
        CLOUDML_GATEWAY_PORTS="18610-18619",
        **{f"CLOUDML_GATEWAY_TLS_{name}": path for name, path in settings.items()},
    ) as up:
        save_linear(up.folder / "linear")
        up.client().storage.upload(
            up.folder / "linear" / "model.onnx", "fds://cloudml/linear/1/model.onnx"
        )
        ask = ServiceApi(up)
        ask(
            "POST",
            "",
            {"model_name": "linear", "model_version": "v1", "model_uri": "fds://cloudml/linear"},
        )
        service = ask.until("/linear/v1", running(1))
        assert service["tls"] is True
        yield Served(up, folder, service["address"], token_of(up.credentials))


def test_both_protocols(served: Served) -> None:
    with served.channel() as channel, contextlib.closing(served.connection()) as connection:
        assert over_grpc(channel, served.token) == [12.0, 14.0]
        assert over_http(connection, served.token) == (200, {"predictions": [12.0, 14.0]})
        assert over_http(connection, None)[0] == 401
        with pytest.raises(grpc.RpcError) as refused:
            over_grpc(channel, None)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_rest_over_http_2_where_a_caller_offers_it(served: Served) -> None:
    host, port = served.address.split(":")
    for offered, chosen in (
        (["h2"], "h2"),
        (["http/1.1", "h2"], "h2"),
        (["http/1.1"], "http/1.1"),
        ([], None),
    ):
        trust = ssl.create_default_context(cafile=str(served.folder / "authority.pem"))
        if offered:
            trust.set_alpn_protocols(offered)
        with Http2Client(host, int(port), trust) as client:
            assert isinstance(client.socket, ssl.SSLSocket)
            assert client.socket.selected_alpn_protocol() == chosen
            if chosen == "h2":
                bearer = {"authorization": f"Bearer {served.token}"}
                answer = client.ask(
                    "POST", "/v1/models/linear:predict", {"instances": [1.0]}, **bearer
                )
                assert (answer.status, answer.document) == (200, {"predictions": [12.0]})


def test_who_does_not_speak_tls_or_does_not_trust_gets_nothing(served: Served) -> None:
    with (
        contextlib.closing(http.client.HTTPConnection(served.address, timeout=60)) as plain,
        pytest.raises(OSError),
    ):
        over_http(plain, served.token)
    strict = http.client.HTTPSConnection(
        served.address, timeout=60, context=ssl.create_default_context()
    )
    with contextlib.closing(strict), pytest.raises(ssl.SSLCertVerificationError):
        over_http(strict, served.token)


def test_the_command_line_asks_over_it(served: Served) -> None:
    (served.server.user_home / "data.json").write_text('{"x": [1.0, 2.0]}')
    for way in ((), ("--http",)):
        result = served.server.cli(
            "models", "predict", "linear", "v1", "-d", "data.json", *way,
            SSL_CERT_FILE=str(served.folder / "authority.pem"),
        )  # fmt: skip
        assert result.good().json() == {"y": [12.0, 14.0]}, way


def test_a_certificate_that_is_renewed_is_shown_and_no_call_fails(served: Served) -> None:
    load = Load()
    with served.channel() as kept:  # its connection is told to go
        make_certificate(served.folder, 1002)

        def renewed() -> bool:
            load.note("grpc", lambda: over_grpc(kept, served.token))
            with contextlib.closing(served.connection()) as fresh:
                load.note("http", lambda: over_http(fresh, served.token)[1]["predictions"])
            return served.serial() == 1002

        eventually(renewed, "the new certificate is shown")
        assert over_grpc(kept, served.token) == [12.0, 14.0]
    assert load.failed == []

    (served.folder / "services.pem").write_text("no certificate")
    eventually(
        lambda: "has changed and cannot be used" in served.server.log(),
        "it says that it cannot use them",
    )
    assert served.serial() == 1002
