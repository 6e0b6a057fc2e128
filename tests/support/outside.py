"""A host beyond this machine, made up: a network of its own at the other end of a line, with
addresses of all kinds.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cloud_ml import linux

T = TypeVar("T")


@dataclass(frozen=True)
class Outside:
    """``public`` stands for the open internet, ``private`` and ``link_local`` for what is near;
    ``machine`` is ours.

    ``device`` is this end of the line.
    """

    namespace: Path
    public: str
    private: str
    link_local: str
    machine: str
    device: str

    def listener(
        self, address: str, kind: int = socket.SOCK_STREAM, port: int = 0
    ) -> socket.socket:
        """A socket that listens over there."""
        return within(self.namespace, lambda: listening(address, kind, port))


def listening(address: str, kind: int = socket.SOCK_STREAM, port: int = 0) -> socket.socket:
    """A socket that listens here."""
    made = socket.socket(socket.AF_INET, kind)
    made.bind((address, port))
    made.settimeout(60)
    if kind == socket.SOCK_STREAM:
        made.listen()
    return made


def within(namespace: Path, make: Callable[[], T]) -> T:
    """What ``make`` makes in another network: a thread goes there and ends, its sockets stay."""
    made: list[T] = []

    def go() -> None:
        descriptor = os.open(namespace, os.O_RDONLY)
        try:
            linux.enter_network(descriptor)
        finally:
            os.close(descriptor)
        made.append(make())

    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    return made[0]


@contextmanager
def outside() -> Iterator[Outside]:
    """The made-up host, for root and with ``ip``. Parallel tests get ranges of their own."""
    number = os.getpid() % 200
    name, near, far = f"out-{os.getpid()}", f"oh{os.getpid()}", f"of{os.getpid()}"
    machine, public = f"198.51.100.{number}", f"203.0.114.{number}"
    private, link_local = f"10.77.{number}.9", f"169.254.77.{number}"
    _ip("netns", "add", name)
    try:
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        _ip("addr", "add", f"{machine}/32", "dev", near)
        _ip("link", "set", near, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        for address in (public, private, link_local):
            _ip("-n", name, "addr", "add", f"{address}/32", "dev", far)
        _ip("-n", name, "link", "set", far, "up")
        _ip("-n", name, "route", "add", f"{machine}/32", "dev", far)
        for address in (public, private, link_local):
            _ip("route", "add", f"{address}/32", "dev", near, "src", machine)
        yield Outside(Path("/run/netns", name), public, private, link_local, machine, near)
    finally:
        _ip("netns", "delete", name)
        subprocess.run(["ip", "link", "delete", near], check=False, stderr=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=10)
