"""Both faces over TLS: a certificate that is trusted, and one that is not."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.aio import AsyncCloudMlClient
from cloud_ml.client import CloudMlClient
from cloud_ml.errors import TransportError
from support.fake_api import FakeApi
from support.fake_server import ACCESS_KEY, SECRET_KEY, FakeServer, serving

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="there is no openssl to make a certificate"
)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    file = tmp_path / "server.pem"
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
    subject = ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*command, "-keyout", file, "-out", tmp_path / "c.pem", *subject],
        check=True,
        capture_output=True,
    )
    with file.open("ab") as both:
        both.write((tmp_path / "c.pem").read_bytes())
    return file


@pytest.fixture
def server(certificate: Path) -> Iterator[FakeServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(FakeApi(), tls=context) as fake:
        yield fake


def test_requests_share_a_trusted_connection(
    server: FakeServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def main() -> list[str]:
        async with AsyncCloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint) as client:
            await client.storage.upload(b"x" * 300_000, "fds://cloudml/x")
            async with await client.storage.open("fds://cloudml/x") as answer:
                assert await answer.read() == b"x" * 300_000
            return [(await client.whoami()).user for _ in range(3)]

    assert asyncio.run(main()) == ["admin"] * 3
    assert server.connections == 1
    with CloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint) as client:
        assert client.whoami().user == "admin"


def test_a_certificate_that_is_not_trusted_is_told(server: FakeServer) -> None:
    async def main() -> None:
        async with AsyncCloudMlClient(ACCESS_KEY, SECRET_KEY, server.endpoint) as client:
            with pytest.raises(TransportError, match="is not trusted") as caught:
                await client.whoami()
            assert "SSL_CERT_FILE" in (caught.value.hint or "")

    asyncio.run(main())
