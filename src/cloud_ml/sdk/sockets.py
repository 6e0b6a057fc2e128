"""What both faces want of a socket."""

from __future__ import annotations

import select
import socket
from typing import Protocol

KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value)
      for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
      if hasattr(socket, name)),
)  # fmt: skip
"""Options by which the operating system finds out that the other side is gone."""


class HasFileno(Protocol):
    """A socket, whoever made it."""

    def fileno(self) -> int:
        """Its descriptor."""


def went_stale(sock: HasFileno) -> bool:
    """Whether an idle connection can serve no more."""
    # An idle connection with something to read was closed by the server (or is out of step):
    # noticing it here spares a request that could not be sent twice.
    poller = select.poll()
    poller.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poller.poll(0))
