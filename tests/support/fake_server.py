"""A small real HTTP server on loopback: every request's signature is checked, answers are
scripted.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from cloud_ml.auth import claims
from cloud_ml.auth.signature import content_sha256
from cloud_ml.errors import CloudMlError

ACCESS_KEY = "test-key"
SECRET_KEY = "test-secret"


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.target).path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """An answer. A body of chunks is streamed; with ``cut`` the connection breaks off behind
    them.
    """

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


def json_reply(document: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(
        status, json.dumps(document).encode(), {"content-type": "application/json", **headers}
    )


def refusal(error: CloudMlError, status: int) -> Reply:
    return json_reply(error.document(), status)


Handler = Callable[[Seen], Reply]


class FakeServer:
    """Answers with what is queued, then with what ``handler`` says."""

    def __init__(self, handler: Handler | None = None) -> None:
        self.handler: Handler = handler or (lambda seen: Reply(404))
        self.seen: list[Seen] = []
        self.queued: deque[Reply] = deque()
        self.connections = 0
        self.bad_signatures: list[CloudMlError] = []
        self.endpoint = ""

    def answer(self, seen: Seen) -> Reply:
        self.seen.append(seen)
        try:
            claim = claims.read(seen.headers.items())
            secret = SECRET_KEY if claim.key == ACCESS_KEY else None
            claim.verify(
                secret, method=seen.method, target=seen.target, now=datetime.now(UTC), window_s=300
            )
            claim.check_body(content_sha256(seen.body))
        except CloudMlError as error:
            self.bad_signatures.append(error)
            return refusal(error, 401)
        return self.queued.popleft() if self.queued else self.handler(seen)


@contextmanager
def serving(
    handler: Handler | None = None, *, tls: ssl.SSLContext | None = None
) -> Iterator[FakeServer]:
    fake = FakeServer(handler)
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _handler_class(fake))
    httpd.daemon_threads = True
    fake.endpoint = f"http://127.0.0.1:{httpd.server_port}"
    if tls is not None:
        httpd.socket = tls.wrap_socket(
            httpd.socket, server_side=True, do_handshake_on_connect=False
        )
        fake.endpoint = f"https://localhost:{httpd.server_port}"
    thread = threading.Thread(target=lambda: httpd.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def _handler_class(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Connection(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            fake.connections += 1

        def handle(self) -> None:
            with suppress(ConnectionError):  # clients may have had enough
                super().handle()

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = fake.answer(Seen(self.command, self.path, headers, body))
            self.send_response(reply.status)
            self.send_header("x-request-id", "fake")
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if isinstance(reply.body, bytes):
                if "content-length" not in reply.headers:
                    self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else reply.body)
            else:
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for chunk in reply.body:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                if not reply.cut:
                    self.wfile.write(b"0\r\n\r\n")
            self.close_connection = self.close_connection or reply.cut

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Connection
