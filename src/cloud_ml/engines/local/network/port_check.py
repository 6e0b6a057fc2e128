"""Whether the ports of a gang are free, before its tasks listen on them."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloud_ml import linux

_ADDRESSES = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))  # noqa: S104 - nobody listens
# Not /proc/net: it shows the network namespace of the main thread, and this thread may have
# entered another one.
_CONNECTIONS = ("/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6")
_MOST_CONNECTIONS = 200_000
_LOCAL_ADDRESS, _INODE = 1, 9
"""Columns of these files."""


@dataclass(frozen=True)
class TakenPort:
    """A port on which nobody can listen now.

    If it is ``closing``, no process has it: the system keeps connections of one that has ended, for
    a minute at most. It lets others listen meanwhile only if that process had set SO_REUSEADDR.
    """

    number: int
    closing: bool

    @property
    def why(self) -> str:
        """Such as "is in use by another process"."""
        if self.closing:
            return "still has connections of a process that has ended"
        return "is in use by another process"


def taken_port(ports: Sequence[int], network: tuple[int, str] | None) -> TakenPort | None:
    """The first of ``ports`` that somebody has; ``None`` if all are free.

    Args:
        ports: Those of all tasks.
        network: Where the network of the organisation is mounted: an open folder, and the name in
            it. ``None`` is the network of this process.

    Raises:
        OSError: The network cannot be entered.
    """
    if network is None:
        return _first_taken(ports)
    folder, name = network
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return _in_network(descriptor, ports)
    finally:
        os.close(descriptor)


def _in_network(descriptor: int, ports: Sequence[int]) -> TakenPort | None:
    """The same in another network. A thread enters it: each has a network of its own, and the
    rest of the process stays where it is.
    """
    found: list[TakenPort | None] = []
    failure: list[OSError] = []

    def look() -> None:
        try:
            linux.enter_network(descriptor)
            found.append(_first_taken(ports))
        except OSError as error:
            failure.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return found[0]


def _first_taken(ports: Sequence[int]) -> TakenPort | None:
    taken = [port for port in ports if _is_taken(port)]
    found = [TakenPort(port, _is_closing(port)) for port in taken]
    in_use = (one for one in found if not one.closing)
    return next(in_use, found[0] if found else None)


def _is_closing(port: int) -> bool:
    """Whether there are connections from a port, and all of them belong to no process any more. A
    socket that neither listens nor is connected is in no list.
    """
    inodes = [*_inodes(port)]
    return bool(inodes) and not any(inodes)


def _inodes(port: int) -> Iterator[int]:
    """The number of each socket of a port; 0 for those that no process has any more."""
    # The kernel prints ADDRESS:PORT in hexadecimal.
    end = f":{port:04X}"
    for path in _CONNECTIONS:
        with contextlib.suppress(OSError), Path(path).open(encoding="ascii") as lines:
            for line in itertools.islice(lines, 1, _MOST_CONNECTIONS):
                words = line.split()
                if len(words) > _INODE and words[_LOCAL_ADDRESS].endswith(end):
                    yield int(words[_INODE])


def _is_taken(port: int) -> bool:
    """Whether nobody can listen on a port, as nearly all frameworks do: with SO_REUSEADDR, so that
    connections that have ended mostly do not count.
    """
    for family, address in _ADDRESSES:
        with contextlib.ExitStack() as stack:
            try:
                probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            except OSError:  # the machine has no IPv6
                continue
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # Without it, "::" stands for IPv4 as well, which has a probe of its own.
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
    return False
