"""The supervisor's side of sockets on which tasks without a way out reach the server.

The first process in a task's sandbox listens before the code starts, and sends the socket here. It
is kept until the attempt is over, so what calls while no server is there waits in it. Whichever
server leads fetches it (see ``ListenerClient``).
"""

from __future__ import annotations

import array
import contextlib
import os
import selectors
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BACKLOG = 8
_LOOPBACK = "127.0.0.1"
_DESCRIPTOR_BYTES = array.array("i").itemsize


@dataclass(frozen=True)
class OfferName:
    """Whose socket a file of the folder offers."""

    tenant: int
    job_uid: str

    @classmethod
    def of_attempt(cls, tenant: int, job_uid: str, attempt: int) -> str:
        """What the names of an attempt's files begin with."""
        return f"{tenant}.{job_uid}.{attempt}"

    @classmethod
    def parse(cls, name: str) -> OfferName | None:
        """``None`` for a draft, and for what is no such file."""
        tenant, _, rest = name.partition(".")
        parts = rest.rsplit(".", 2)
        if len(parts) != 3 or not parts[0] or not all(map(str.isdecimal, (tenant, *parts[1:]))):
            return None
        return cls(int(tenant), parts[0])


@dataclass
class _ListenerEntry:
    """``offer`` is where a server asks for ``listener``, ``server`` the connection of the last that
    has done so.
    """

    listener: socket.socket
    offer: socket.socket
    path: Path
    server: socket.socket | None = field(default=None)


class ListenerStore:
    """Keeps the sockets of an attempt.

    Args:
        selector: Its keys have a function and its argument.
        folder: Where servers look. Nobody but the server's user may enter it.
        name: What the files of this attempt begin with.
        port: Where such a socket listens.
        log: Told why there is no way to the server.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        folder: Path,
        name: str,
        port: int,
        log: Callable[[bytes], None],
    ) -> None:
        self._selector = selector
        self._folder = folder
        self._name = name
        self._port = port
        self._log = log
        self._count = 0
        self._expected: dict[str, socket.socket] = {}
        self._kept: dict[str, _ListenerEntry] = {}

    def expect(self, task: str, channel: int) -> None:
        """A task sends its socket through this descriptor, which is taken over; or nothing, if it
        shares the network of a task that has done so.
        """
        self._forget_expected(task)
        received = socket.socket(fileno=channel)
        received.setblocking(False)
        self._expected[task] = received
        self._selector.register(received, selectors.EVENT_READ, (self._receive, task))

    def forget(self, task: str) -> None:
        """Close what a task has sent. Its network is gone with that, if it has ended."""
        self._forget_expected(task)
        self._forget_kept(task)

    def close(self) -> None:
        """Close all of them, and tell servers by that that the attempt is over."""
        for task in {*self._expected, *self._kept}:
            self.forget(task)

    def _receive(self, task: str) -> None:
        try:
            listener = receive_listener(self._expected[task], self._port)
        except BlockingIOError:
            return
        except (OSError, ValueError) as error:
            self._tell(error)
            listener = None
        self._forget_expected(task)
        if listener is None:
            return
        try:
            self._keep(task, listener)
        except OSError as error:
            listener.close()
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        self._log(f"cloudml: this job has no way to the server: {error}\n".encode())

    def _keep(self, task: str, listener: socket.socket) -> None:
        self._forget_kept(task)  # of an earlier process, whose network is gone
        self._count += 1
        path = self._folder / f"{self._name}.{self._count}"
        offer = _listen_at(path)
        self._kept[task] = _ListenerEntry(listener, offer, path)
        self._selector.register(offer, selectors.EVENT_READ, (self._hand_out, task))

    def _hand_out(self, task: str) -> None:
        if (kept := self._kept.get(task)) is None:  # it went within the moment
            return
        try:
            server, _ = kept.offer.accept()
        except OSError:  # it has gone already
            return
        # One leads. An earlier one that hangs learns by this that another has followed it.
        if kept.server is not None:
            kept.server.close()
        kept.server = server
        with contextlib.suppress(OSError):
            server.setblocking(False)
            socket.send_fds(server, [b"\0"], [kept.listener.fileno()])

    def _forget_expected(self, task: str) -> None:
        if (channel := self._expected.pop(task, None)) is not None:
            self._selector.unregister(channel)
            channel.close()

    def _forget_kept(self, task: str) -> None:
        if (kept := self._kept.pop(task, None)) is None:
            return
        self._selector.unregister(kept.offer)
        kept.path.unlink(missing_ok=True)
        for each in (kept.offer, kept.server, kept.listener):
            if each is not None:
                each.close()


def receive_listener(channel: socket.socket, port: int) -> socket.socket | None:
    """The socket that was sent; ``None`` if the other side has closed the channel.

    Raises:
        BlockingIOError: There is nothing yet.
        ValueError: What was sent does not listen on that port of the loopback.
        OSError: The channel is broken.
    """
    sent, control, _, _ = channel.recvmsg(
        1, socket.CMSG_SPACE(_DESCRIPTOR_BYTES), socket.MSG_CMSG_CLOEXEC
    )
    found = array.array("i")
    for level, kind, content in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(content[: len(content) - len(content) % _DESCRIPTOR_BYTES])
    if not found:
        if sent:
            raise ValueError("no socket was sent")
        return None
    first, *others = found
    for each in others:
        os.close(each)
    try:
        listener = socket.socket(fileno=first)
    except OSError:
        os.close(first)
        raise
    try:
        _check(listener, port)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _check(listener: socket.socket, port: int) -> None:
    is_tcp = (listener.family, listener.type) == (socket.AF_INET, socket.SOCK_STREAM)
    listens = is_tcp and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if not listens or listener.getsockname() != (_LOOPBACK, port):
        raise ValueError(f"what was sent does not listen on port {port} of the loopback")


def _listen_at(path: Path) -> socket.socket:
    """Listen where the name is seen only once somebody can connect."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    draft = path.with_name(f".{path.name}")
    try:
        with opened_folder(path.parent) as folder:
            draft.unlink(missing_ok=True)
            made.bind(f"{folder}/{draft.name}")
            made.listen(_BACKLOG)
            made.setblocking(False)
            draft.rename(path)
    except BaseException:
        made.close()
        draft.unlink(missing_ok=True)
        raise
    return made


@contextlib.contextmanager
def opened_folder(folder: Path) -> Iterator[str]:
    """A short path to a folder: an address of a socket has 108 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
