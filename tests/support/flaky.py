"""A way to a server that can be cut, stalled and counted."""

from __future__ import annotations

import select
import socket
import socketserver
import threading


class FlakyWay(socketserver.ThreadingTCPServer):
    """Forwards to a port of this machine.

    Attributes:
        up_limit, down_limit: After so many bytes that way in all, something happens; ``None``:
        never. stall: Then nothing goes on; otherwise the connection is cut and the limit is lifted.
        up, down: Bytes forwarded so far. reached: Set when a limit was reached.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.target = ("127.0.0.1", port)
        self.up_limit: int | None = None
        self.down_limit: int | None = None
        self.stall = False
        self.up = self.down = 0
        self.reached = threading.Event()
        self._over = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Where clients are to go."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def passes(self, count: int, *, up: bool) -> bool:
        """Whether so many more bytes may pass; a stalled way never answers."""
        limit = self.up_limit if up else self.down_limit
        done = self.up if up else self.down
        if limit is not None and done + count > limit:
            self.reached.set()
            if self.stall:
                self._over.wait()
            self.up_limit = self.down_limit = None
            return False
        if up:
            self.up += count
        else:
            self.down += count
        return True

    def close(self) -> None:
        """End it."""
        self._over.set()
        self.shutdown()
        self.server_close()


class _Forward(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        way = self.server
        assert isinstance(way, FlakyWay)
        with socket.create_connection(way.target) as there:
            other = {self.request: there, there: self.request}
            while True:
                for ready in select.select(list(other), [], [])[0]:
                    try:
                        chunk = ready.recv(16_384)
                        if not chunk or not way.passes(len(chunk), up=ready is self.request):
                            return
                        other[ready].sendall(chunk)
                    except OSError:
                        return
