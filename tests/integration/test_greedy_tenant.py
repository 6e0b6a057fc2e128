"""What one tenant makes the server do for hours costs nobody else a second, nor the server its
orderly end.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from cloud_ml.auth import signature
from cloud_ml.client import CloudMlClient
from support.server import RealServer

pytestmark = pytest.mark.timeout(300)

HOLES = 1 << 42
"""A file of a job's that costs nothing to make, and hours to read."""
FLOOD = 24
"""More than the server has threads."""
PATIENCE_S = 60.0


def ask(
    server: RealServer, method: str, target: str, body: bytes = b"", **headers: str
) -> http.client.HTTPConnection:
    """Send a request and wait for nothing."""
    key = server.credentials
    signed = signature.sign(
        method, target, key=key["access_key"], secret=key["secret_key"], now=datetime.now(UTC),
        content=signature.content_sha256(body),
    )  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    connection.request(method, target, body, {**signed, **headers})
    return connection


@pytest.mark.slow
def test_a_tenant_that_has_files_of_holes_read(serve: Callable[..., RealServer]) -> None:
    server = serve(CLOUDML_SERVER_SHUTDOWN_TIMEOUT_S=1)  # nobody waits for the reads
    admin = server.client()
    admin.admin.create_org("other")
    admin.admin.create_user("otto", org="other", role="owner")
    made = admin.admin.create_key("otto", org="other")
    server.bucket("holes").touch()
    os.truncate(server.bucket("holes"), HOLES)
    copy_request = json.dumps(
        {"source_bucket": "cloudml", "source_key": "holes", "bucket": "cloudml", "key": "copy"}
    ).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(FLOOD):
            sent = ask(
                server, "HEAD", "/api/v1/storage/cloudml/holes", **{"Want-Repr-Digest": "sha-256=1"}
            )
            stack.callback(sent.close)
        stack.callback(ask(server, "POST", "/api/v1/storage/-/copy", copy_request).close)
        other = stack.enter_context(
            CloudMlClient(made.key.access_key, made.secret_key, server.endpoint)
        )
        before = time.monotonic()
        other.storage.upload_stream(io.BytesIO(b"mine"), "fds://other/mine")
        assert [one.key for one in other.storage.list_objects("fds://other/")] == ["mine"]
        assert other.whoami().user == "otto"
        assert time.monotonic() - before < PATIENCE_S
        assert server.terminate() < PATIENCE_S
