"""The process that opens the sockets of replicas opens nothing else."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.domain.services.spec import SOCKET
from cloud_ml.gateway import opener


@pytest.fixture
def line(tmp_path: Path) -> Iterator[socket.socket]:
    """Its other end; replicas lie below ``tmp_path / jobs``."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    serving = threading.Thread(target=opener.serve, args=(theirs, tmp_path / "jobs"))
    serving.start()
    with theirs:
        with ours:
            yield ours
        serving.join()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Path]:
    """A working folder with a socket that listens, which is reached by a short name too."""
    folder = tmp_path / "jobs" / "a1" / "work"
    folder.mkdir(parents=True)
    number = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{number}/{SOCKET}")
        listener.listen()
        yield folder
    os.close(number)


def ask(line: socket.socket, folder: Path | str) -> bytes:
    line.send(str(folder).encode())
    answer, descriptors, _, _ = socket.recv_fds(line, 1024, 1)
    for number in descriptors:
        assert socket.socket(fileno=number).close() is None
    assert bool(descriptors) == (answer == b"+")
    return answer


def test_a_replica_is_opened(line: socket.socket, replica: Path) -> None:
    assert ask(line, replica) == b"+"
    assert ask(line, replica) == b"+"


def test_nothing_else_is(line: socket.socket, replica: Path, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "jobs" / "a2").mkdir()
    (tmp_path / "jobs" / "a2" / "work").symlink_to(replica)
    jobs = tmp_path / "jobs"
    for folder in (
        tmp_path / "else" / "work",
        replica.parent,
        f"{jobs}/../work",
        "/work",
        f"{replica}/../../a1/work",
    ):
        assert b"is no working folder of a replica" in ask(line, folder), folder
    assert ask(line, tmp_path / "jobs" / "a2" / "work").startswith(b"-"), "a link is not followed"
    assert ask(line, f"{tmp_path}/jobs/a1\x00/work").startswith(b"-")
    assert ask(line, replica) == b"+", "and it goes on"
