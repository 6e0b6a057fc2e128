"""A web server on loopback that answers as it is told."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Answering = Callable[[http.server.BaseHTTPRequestHandler], None]


class Web(http.server.ThreadingHTTPServer):
    """Answers paths by functions; counts what was asked for."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, Answering] = {}
        self.seen: list[str] = []
        self.over = threading.Event()

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self.server_port}{path}"

    def page(self, path: str, content: bytes) -> str:
        """Answer a path with bytes; returns its address."""

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)

        self.pages[path] = answer
        return self.url(path)

    def redirect(self, path: str, target: str) -> str:
        """Answer a path with another address; returns its own."""

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", target)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        self.pages[path] = answer
        return self.url(path)


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Web)
        self.server.seen.append(self.path)
        page = self.server.pages.get(self.path)
        if page is None:
            self.send_error(404)
        else:
            page(self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the standard library
        pass


@contextmanager
def serving_web() -> Iterator[Web]:
    """Such a server, for as long as the block lasts."""
    web = Web()
    threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield web
    finally:
        web.over.set()
        web.shutdown()
        web.server_close()
