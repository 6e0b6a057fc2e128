"""How the server asks the spawner: a unix socket, a JSON line each way, the folder's token in each
request.

``{"ensure": <gang>}`` is answered ``{"ok": true}`` once a supervisor has it, ``{"retire": true}``
ends the spawner (its supervisors run on).
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import selectors
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOCKET_NAME = "spawner.sock"
TOKEN_NAME = "spawner.token"  # noqa: S105 - a file's name


@dataclass
class _Connection:
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)


class Requests:
    """Takes requests and writes what ``answer`` makes of each; what that raises is the answer as
    well.
    """

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        token: str,
        answer: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        self._selector = selector
        self._token = token
        self._answer = answer
        self.connections = 0
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        entry = _Connection(connection)
        self.connections += 1
        self._selector.register(connection, selectors.EVENT_READ, lambda _: self._receive(entry))

    def _receive(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(connection.socket)
            connection.socket.close()
            self.connections -= 1
            return
        connection.received += data
        while (end := connection.received.find(b"\n")) >= 0:
            line = bytes(connection.received[:end])
            del connection.received[: end + 1]
            answer = json.dumps(self._handle(line)).encode() + b"\n"
            with contextlib.suppress(OSError):
                # Answers are short and fit the buffer of the socket. A server that is gone needs
                # none.
                connection.socket.sendall(answer)

    def _handle(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not hmac.compare_digest(str(request.get("token", "")), self._token):
                return {"ok": False, "error": "the token is not the one in " + TOKEN_NAME}
            return self._answer(request)
        except Exception as error:
            traceback.print_exc()
            return {"ok": False, "error": str(error)}


def listen(root: Path) -> socket.socket:
    """The socket, which only the server's user may connect to."""
    # bind(2) fails if the name exists. Removing it is safe: the spawner's lock proves that no
    # process listens on it.
    (root / SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Set the mode by umask: chmod(2) afterwards would leave a short time with the wrong mode.
    # connect(2) requires write permission.
    previous = os.umask(0o177)
    os.chdir(root)  # a socket's path is limited to about a hundred bytes, so it is given relative
    listener.bind(SOCKET_NAME)
    os.umask(previous)
    os.chdir("/")
    listener.listen(64)
    return listener


def make_token(root: Path) -> str:
    """What every request must carry, in a file that only the server's user reads.

    Landlock hides files from a job without a sandbox, but not a socket's name from one of the same
    user.
    """
    token = os.urandom(16).hex()
    draft = root / f".{TOKEN_NAME}"
    draft.unlink(missing_ok=True)
    with open(  # noqa: PTH123
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w"
    ) as file:
        file.write(token)
    draft.replace(root / TOKEN_NAME)
    return token
