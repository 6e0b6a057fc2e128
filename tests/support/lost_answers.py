"""A way to a server that loses one answer, and has somebody else act before the client tries
again.
"""

from __future__ import annotations

import select
import socket
import socketserver
import threading
from collections.abc import Callable


class LostAnswers(socketserver.ThreadingTCPServer):
    """Forwards to a port of this machine.

    Attributes:
        lost: How many answers were lost.
        requests: The first line of each request that came.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.target = ("127.0.0.1", port)
        self.lost = 0
        self.requests: list[str] = []
        self._method: str | None = None
        self._meanwhile: Callable[[], object] = lambda: None
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Where clients are to go."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def lose(self, method: str, meanwhile: Callable[[], object]) -> None:
        """Lose the answer to the next request of a method, and call ``meanwhile`` before the
        client knows.
        """
        self._method, self._meanwhile = method, meanwhile

    def note(self, chunk: bytes) -> bool:
        """Note a request; returns whether its answer is to be lost."""
        line = chunk.partition(b"\r\n")[0].decode("latin-1")
        if not line.endswith("HTTP/1.1"):
            return False
        self.requests.append(line)
        if self._method is None or not line.startswith(self._method + " "):
            return False
        self._method = None
        return True

    def answer_is_lost(self) -> None:
        """The server has carried out the request."""
        self.lost += 1
        self._meanwhile()

    def close(self) -> None:
        """End it."""
        self.shutdown()
        self.server_close()


class _Forward(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        way, lose = self.server, False
        assert isinstance(way, LostAnswers)
        with socket.create_connection(way.target) as there:
            other = {self.request: there, there: self.request}
            while True:
                for ready in select.select(list(other), [], [])[0]:
                    try:
                        chunk = ready.recv(1 << 20)
                        if chunk and ready is self.request:
                            lose = way.note(chunk) or lose
                        if not chunk:
                            return
                        if lose and ready is there:
                            way.answer_is_lost()
                            return
                        other[ready].sendall(chunk)
                    except OSError:
                        return
