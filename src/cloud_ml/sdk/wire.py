"""The bytes of one connection, in both directions."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from cloud_ml.sdk.sockets import went_stale

_BLOCK_BYTES = 64 * 1024
"""Larger blocks are taken from the kernel and given back for each read, which costs more than
the copying.
"""


class Wire:
    """One connection over a socket.

    Attributes:
        arrived: What has been received and not been read.
        sock: The socket; another thread may shut it down.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.arrived = bytearray()
        self.sock = sock

    @contextlib.contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """No single wait in the block takes longer than ``timeout_s``; then it raises
        ``TimeoutError``.
        """
        self.sock.settimeout(timeout_s)
        yield

    def more(self) -> bool:
        """Wait for bytes; ``False`` when none will come.

        Raises:
            OSError: The connection broke.
        """
        data = self.sock.recv(_BLOCK_BYTES)
        self.arrived += data
        return bool(data)

    def receive(self, most: int) -> bytes:
        """Up to so many bytes, as soon as there are any; empty when none will come. Raises as
        ``more``.
        """
        return self.take(most) if self.arrived else self.sock.recv(min(most, _BLOCK_BYTES))

    def take(self, most: int) -> bytes:
        """Up to so many of the bytes that have arrived."""
        taken = bytes(memoryview(self.arrived)[:most])
        del self.arrived[: len(taken)]
        return taken

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes.

        Raises:
            OSError: The connection is gone.
        """
        self.sock.sendall(data)

    @property
    def usable(self) -> bool:
        """Whether an idle connection can serve another request."""
        return not self.arrived and not went_stale(self.sock)

    def close(self) -> None:
        """Hang up."""
        self.sock.close()
