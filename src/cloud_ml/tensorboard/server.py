"""TensorBoard's own program with a server that listens on a Unix socket.

TensorBoard is not changed: it takes a class of servers as an argument.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tensorboard import default, program
from werkzeug import serving

StartResponse = Callable[..., Any]
WsgiApp = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]
_OWN_LOOPBACK = "CLOUDML_OWN_LOOPBACK"
"""Set where no other process reaches the loopback: ``engines.gang`` has it, too."""


def serve(log_folder: Path, socket_name: str, on_request: Callable[[], None]) -> None:
    """Run TensorBoard on a folder. Ends with the process.

    ``on_request`` is called at each request.
    """

    def server(app: WsgiApp, _flags: Any) -> UnixSocketServer:
        def observed(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            on_request()
            return app(environ, start_response)

        return UnixSocketServer(observed, socket_name)

    board = program.TensorBoard(plugins=default.get_plugins(), server_class=server)
    board.configure(argv=["tensorboard", f"--logdir={log_folder}", f"--load_fast={_load_fast()}"])
    sys.exit(board.main())


def _load_fast() -> str:
    """TensorBoard's fast data server answers anybody on a port of the loopback, and can listen on
    nothing else. Where others share the loopback, TensorBoard reads the files itself.
    """
    return "auto" if os.environ.get(_OWN_LOOPBACK) else "false"


class UnixSocketServer(program.TensorBoardServer):  # type: ignore[misc] # there are no types of it
    """Serves TensorBoard's application on a Unix socket in the working folder."""

    def __init__(self, app: WsgiApp, socket_name: str) -> None:
        Path(socket_name).unlink(missing_ok=True)  # of an earlier attempt
        # Werkzeug would bind the absolute path. Without a sandbox, that may be longer than an
        # address of a Unix socket can be (108 bytes, unix(7)).
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(socket_name)
        self._socket.listen()
        self._server = serving.make_server(
            f"unix://{socket_name}",
            0,
            with_length(app),
            threaded=True,
            request_handler=RequestHandler,
            fd=self._socket.fileno(),
        )

    def serve_forever(self) -> None:
        """Answer requests until the process ends."""
        self._server.serve_forever()

    def get_url(self) -> str:
        """An address, since TensorBoard notes its port. Nobody listens there."""
        return "http://localhost:80/"

    def print_serving_message(self) -> None:
        """Say in the log that it answers from now on."""
        sys.stdout.write("TensorBoard is ready\n")
        sys.stdout.flush()


class RequestHandler(serving.WSGIRequestHandler):  # type: ignore[misc] # likewise
    """Keeps connections open, and writes no line for each request."""

    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        """The peer has no address."""
        return "gateway"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """A log that grows with each request helps nobody."""


def with_length(app: WsgiApp) -> WsgiApp:
    """The same application, whose answers all have a length: the gateway passes on no others."""

    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        begun: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            begun[:] = [status, headers]
            return parts.append

        parts: list[bytes] = []
        found = app(environ, start)
        try:
            parts.extend(found)
        finally:
            if hasattr(found, "close"):
                found.close()
        status, headers = begun
        if not any(name.lower() == "content-length" for name, _ in headers):
            headers = [*headers, ("Content-Length", str(sum(map(len, parts))))]
        start_response(status, headers)
        return parts

    return answer
