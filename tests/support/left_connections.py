"""Connections that outlive the process that listened."""

from __future__ import annotations

import socket
import struct

_RESETS = struct.pack("ii", 1, 0)
"""SO_LINGER, for no time at all: a connection that is closed is reset."""


def left_connection(port: int) -> socket.socket:
    """Our end of a connection to a port that nobody has any more. Who listened did not set
    SO_REUSEADDR, so nobody else can listen until the connection is gone: until it is closed.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        ours = socket.create_connection(("127.0.0.1", port))
        theirs, _ = listener.accept()
        theirs.close()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
    return ours
