"""The one thing that a gateway without rights needs them for: connecting to the sockets of
replicas.

They lie in folders of their organisations' users, where nobody else may go. A child that keeps the
server's rights opens them, and nothing else: it reads no byte of callers or replicas. It is asked
for ``<uid>/<name>`` and knows itself where that lies. It ends with the gateway, and so the other
way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable

from cloud_ml.domain.addresses import JobSocket
from cloud_ml.domain.services.routes import SOCKET
from cloud_ml.errors import Unavailable
from cloud_ml.job_sockets import JobSockets

_ANSWER_S = 5.0
_OPENED, _REFUSED = b"+", b"-"
logger = logging.getLogger(__name__)


class _Line:
    """To the child, once there is one: rights are the process's, and so is this."""

    to_child: socket.socket | None = None


def connect(address: JobSocket, sockets: JobSockets) -> socket.socket:
    """A connection to a replica: by the child, or by ``sockets`` where there is none.

    Raises:
        Unavailable: Nobody answers there.
    """
    line = _Line.to_child
    if line is None:
        return sockets.connect(address)
    try:
        line.send(f"{address.job_uid}/{address.name}".encode(errors="replace"))
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


def start(sockets: JobSockets) -> None:
    """Start the child. Before there are threads."""
    # SEQPACKET keeps messages apart: each answer comes with its own descriptor.
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
        serve(theirs, sockets)
    finally:
        # Exit handlers and buffers are the parent's.
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


def serve(line: socket.socket, sockets: JobSockets) -> None:
    """Answer until the other side hangs up."""
    while request := line.recv(4096):
        try:
            with sockets.connect(_replica(request)) as made:
                socket.send_fds(line, [_OPENED], [made.fileno()])
        except (Unavailable, OSError, ValueError) as error:
            line.send(_REFUSED + str(error).encode(errors="replace")[:500])


def _replica(request: bytes) -> JobSocket:
    """Model servers listen at one name: other sockets of jobs are nobody's business here."""
    job_uid, _, name = request.decode("ascii").rpartition("/")
    if name != SOCKET:
        raise Unavailable(f"{name!a} is no socket of a replica")
    return JobSocket(job_uid, name)
