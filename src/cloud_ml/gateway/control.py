"""How the server and the gateway speak: a JSON line each way over a unix socket, with the folder's
token in each.

``{}`` is answered with what runs here; ``{"tell": …}`` changes what is served;
``{"figures": true}`` asks for counts; ``{"hand_over": true}`` gives the listening sockets to a
successor, after which this process answers what is under way and ends; ``{"retire": true}`` ends it
likewise, with ``{"if_idle": true}`` only if it serves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloud_ml.domain.services.routes import SOCKET
from cloud_ml.errors import InvalidRequest
from cloud_ml.gateway.config import SOCKET_NAME, TOKEN_NAME, GatewayConfig, Instruction
from cloud_ml.gateway.gateway import Gateway
from cloud_ml.models import codec

LINE_BYTES = 256 << 20
_AT_ONCE = 200  # the kernel passes 253 descriptors with one message
_ANSWER_S = 10.0
logger = logging.getLogger(__name__)


class Control:
    """Answers the server on the gateway's socket.

    ``over`` is set when this process is to end.
    """

    def __init__(self, config: GatewayConfig, gateway: Gateway) -> None:
        self._config = config
        self._gateway = gateway
        self._folder = Path()  # where the process is: above it, its user may pass nowhere
        self._token = ""
        self._lock = asyncio.Lock()
        self._listener: asyncio.AbstractServer | None = None
        self._inode = 0
        self.connections = 0
        self.over = asyncio.Event()

    async def start(self) -> None:
        """Take the place of whoever answered here before."""
        # Before the socket has its name: who finds the socket has to find its token.
        self._token = os.urandom(16).hex()
        write_secret(self._folder / TOKEN_NAME, self._token)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        draft = f".{SOCKET_NAME}.{os.getpid()}"
        with _within(self._folder) as folder:
            # `bind` makes the file with the rights that the umask leaves. With `chmod` after it
            # others could connect for a moment.
            previous = os.umask(0o177)
            try:
                made.bind(f"{folder}/{draft}")
            finally:
                os.umask(previous)
        # Before the rename: who finds the name is never refused.
        made.listen(64)
        (self._folder / draft).replace(self._folder / SOCKET_NAME)
        self._inode = (self._folder / SOCKET_NAME).stat().st_ino
        self._listener = await asyncio.start_unix_server(self._serve, sock=made, limit=LINE_BYTES)

    def remove(self) -> None:
        """Leave no socket where nobody answers."""
        (self._folder / SOCKET_NAME).unlink(missing_ok=True)

    def close(self) -> None:
        """Answer nobody any more."""
        if self._listener is not None:
            self._listener.close()

    @property
    def reachable(self) -> bool:
        """Whether the socket in the folder is still ours: it is gone with its folder, or a
        successor's.
        """
        with contextlib.suppress(OSError):
            return (self._folder / SOCKET_NAME).stat().st_ino == self._inode
        return False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.transport.set_write_buffer_limits(0)  # an answer is out before descriptors follow it
        try:
            while line := await reader.readline():
                answer = await self._handle(line)
                writer.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
                await writer.drain()
                if answer.get("sockets"):
                    await self._hand_over(writer)
        # `readline` raises ValueError for a line over the limit.
        except (OSError, ValueError):
            pass
        finally:
            self.connections -= 1
            writer.close()

    async def _handle(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not hmac.compare_digest(str(request.get("token", "")), self._token):
                return {"ok": False, "error": "the token is not the one in " + TOKEN_NAME}
            if "tell" in request:
                async with self._lock:
                    await self._gateway.follow(
                        codec.decode(Instruction, request["tell"], ignore_unknown=True)
                    )
                return {
                    "ok": True,
                    "unbound": {str(port): why for port, why in self._gateway.unbound.items()},
                }
            if "figures" in request:
                return {
                    "ok": True,
                    "figures": {
                        uid: codec.encode(each) for uid, each in self._gateway.figures().items()
                    },
                }
            if "hand_over" in request:
                return {
                    "ok": True,
                    "sockets": sorted(self._gateway.sockets),
                    "known": codec.encode(self._gateway.known),
                }
            if request.get("retire") and (
                not request.get("if_idle") or not self._gateway.known.routes
            ):
                self.over.set()
        except Exception as error:
            logger.exception("a request of the server failed")
            return {"ok": False, "error": str(error)}
        return {"ok": True, "pid": os.getpid(), "config": codec.encode(self._config)}

    async def _hand_over(self, writer: asyncio.StreamWriter) -> None:
        """Pass the descriptors on, and once the successor has them, leave."""
        sockets = self._gateway.sockets
        numbers = [sockets[port].fileno() for port in sorted(sockets)]
        pipe: Any = writer.get_extra_info("socket")
        with socket.socket(fileno=os.dup(pipe.fileno())) as beneath:
            # Both descriptors share O_NONBLOCK. Python keeps it set for a socket with a timeout; a
            # blocking socket would block the loop's transport.
            beneath.settimeout(_ANSWER_S)
            for at in range(0, len(numbers), _AT_ONCE):
                await asyncio.to_thread(
                    socket.send_fds, beneath, [b"+"], numbers[at : at + _AT_ONCE]
                )


def take_over(folder: Path) -> tuple[Mapping[int, socket.socket], Instruction]:
    """The listening sockets of a predecessor that still runs, and what it knew; nothing where there
    is none.

    It ends after that: nobody who connects meanwhile is refused, since the sockets are the same
    ones.
    """
    sockets: dict[int, socket.socket] = {}
    try:
        token = (folder / TOKEN_NAME).read_text("ascii")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line, _within(folder) as place:
            line.settimeout(_ANSWER_S)
            line.connect(f"{place}/{SOCKET_NAME}")
            _say(line, {"token": token, "hand_over": True})
            answer = _receive_line(line)
            ports = answer.get("sockets", [])
            while len(sockets) < len(ports):
                _, numbers, _, _ = socket.recv_fds(line, 1, _AT_ONCE)
                if not numbers:
                    break
                for number in numbers:
                    sockets[ports[len(sockets)]] = socket.socket(fileno=number)
            # Not before: had we failed with its sockets half received, the predecessor would still
            # serve.
            _say(line, {"token": token, "retire": True})
            _receive_line(line)
        known = _read_known(answer["known"])
    except (OSError, ValueError, KeyError):
        return sockets, Instruction()
    return sockets, known


def _read_known(document: Any) -> Instruction:
    """What a predecessor knew, also one of another version. What cannot be read is not known: the
    server tells it again.
    """
    try:
        return codec.decode(Instruction, _with_addresses(document), ignore_unknown=True)
    except InvalidRequest as error:
        logger.warning("what the predecessor knew cannot be read: %s", error)
        return Instruction()


def _with_addresses(document: Any) -> Any:
    """Before there were addresses, a backend had the ``folder`` of its socket, which was always
    that of its uid.
    """
    routes = document.get("routes", {})
    for backend in [each for route in routes.values() for each in route.get("backends", ())]:
        if "folder" in backend:
            backend.setdefault("address", {"job_uid": backend["uid"], "name": SOCKET})
    return document


def _say(line: socket.socket, request: dict[str, Any]) -> None:
    line.sendall(json.dumps(request).encode() + b"\n")


def _receive_line(line: socket.socket) -> dict[str, Any]:
    """One line, and no byte more: descriptors come after it."""
    data = bytearray()
    while not data.endswith(b"\n"):
        # The kernel discards descriptors that come with a byte which `recv` reads instead of
        # `recvmsg`.
        waiting = line.recv(65_536, socket.MSG_PEEK)
        if not waiting:
            raise ConnectionError("the gateway hung up")
        data += line.recv(waiting.find(b"\n") + 1 or len(waiting))
    found: dict[str, Any] = json.loads(data)
    return found


def write_secret(path: Path, text: str) -> None:
    """A file that only our user reads."""
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    with open(  # noqa: PTH123
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w"
    ) as file:
        file.write(text)
    draft.replace(path)


@contextlib.contextmanager
def _within(folder: Path) -> Any:
    """A short path of a folder: a socket's path is limited to about a hundred bytes."""
    number = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
