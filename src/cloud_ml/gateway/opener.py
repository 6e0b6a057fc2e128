"""The one thing that a gateway without rights needs them for: connecting to the sockets of
replicas.

They lie in folders of their organisations' users, where nobody else may go. A child that keeps the
server's rights opens them, and nothing else: it reads no byte of callers or replicas. It ends with
the gateway, and so the other way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from cloud_ml.domain.services.spec import SOCKET
from cloud_ml.engines.local import endpoints
from cloud_ml.errors import Unavailable

_ANSWER_S = 5.0
_OPENED, _REFUSED = b"+", b"-"
logger = logging.getLogger(__name__)


class _Line:
    """To the child, once there is one: rights are the process's, and so is this."""

    to_child: socket.socket | None = None


def connect(folder: Path) -> socket.socket:
    """A connection to the replica whose working folder this is; see ``engines.local.doors``.

    Raises:
        Unavailable: Nobody answers there.
    """
    line = _Line.to_child
    if line is None:
        return endpoints.connect(folder, SOCKET)
    try:
        line.send(os.fsencode(folder))
        answer, descriptors, _, _ = socket.recv_fds(line, 1024, 1)
    except OSError:
        answer, descriptors = b"", []
    if descriptors:
        return socket.socket(fileno=descriptors[0])
    if not answer:
        logger.error("the opener does not answer: the gateway ends, and is started again")
        os.kill(os.getpid(), signal.SIGTERM)
    raise Unavailable(
        answer.removeprefix(_REFUSED).decode(errors="replace") or "the opener does not answer"
    )


def start(below: Path) -> None:
    """Start the child, which opens replicas whose working folder is ``below/UID/work``. Before
    there are threads.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(_ANSWER_S)
    if os.fork():
        theirs.close()
        _Line.to_child = ours
        return
    try:
        ours.close()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(null, number)
        serve(theirs, below)
    finally:
        os._exit(0)


def when_lost(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Call when the child has gone; it says nothing unless it is asked, and ``connect`` hears
    that itself.
    """
    if (line := _Line.to_child) is not None:

        def gone() -> None:
            loop.remove_reader(line)
            call()

        loop.add_reader(line, gone)


def serve(line: socket.socket, below: Path) -> None:
    """Answer until the other side hangs up."""
    while asked := line.recv(4096):
        try:
            with endpoints.connect(_checked(Path(os.fsdecode(asked)), below), SOCKET) as made:
                socket.send_fds(line, [_OPENED], [made.fileno()])
        except (Unavailable, OSError, ValueError) as error:
            line.send(_REFUSED + str(error).encode(errors="replace")[:500])


def _checked(folder: Path, below: Path) -> Path:
    if folder.name != "work" or folder.parent.parent != below or folder.parent.name == "..":
        raise Unavailable(f"{folder} is no working folder of a replica")
    return folder
