"""The process that opens the sockets of replicas opens nothing else."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.domain.services.routes import SOCKET
from cloud_ml.gateway import opener
from cloud_ml.job_sockets import JobSockets


@pytest.fixture
def line(tmp_path: Path) -> Iterator[socket.socket]:
    """Its other end; replicas lie below ``tmp_path / jobs``."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    serving = threading.Thread(target=opener.serve, args=(theirs, JobSockets(tmp_path / "jobs")))
    serving.start()
    with theirs:
        with ours:
            yield ours
        serving.join()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Path]:
    """The working folder of ``a1``, with a socket that listens, and another one beside it."""
    folder = tmp_path / "jobs" / "a1" / "work"
    folder.mkdir(parents=True)
    number = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
        for each, name in ((listener, SOCKET), (other, "other.sock")):
            each.bind(f"/proc/self/fd/{number}/{name}")
            each.listen()
        yield folder
    os.close(number)


def ask(line: socket.socket, socket_path: str | bytes) -> bytes:
    line.send(socket_path.encode() if isinstance(socket_path, str) else socket_path)
    answer, descriptors, _, _ = socket.recv_fds(line, 1024, 1)
    for number in descriptors:
        assert socket.socket(fileno=number).close() is None
    assert bool(descriptors) == (answer == b"+")
    return answer


def test_a_replica_is_opened(line: socket.socket, replica: Path) -> None:
    assert ask(line, f"a1/{SOCKET}") == b"+"
    assert ask(line, f"a1/{SOCKET}") == b"+"


def test_nothing_else_is(line: socket.socket, replica: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    outside = tmp_path / "else" / "work"
    outside.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        number = os.open(outside, os.O_PATH)
        listener.bind(f"/proc/self/fd/{number}/{SOCKET}")
        os.close(number)
        listener.listen()
        for socket_path in (
            f"../else/{SOCKET}",
            f"{tmp_path}/else/{SOCKET}",
            f"a1/../../else/{SOCKET}",
            f"a1/work/{SOCKET}",
            f"{jobs}/a1/{SOCKET}",
            f"../jobs/a1/{SOCKET}",
            f"./{SOCKET}",
            f"../{SOCKET}",
            f"/{SOCKET}",
            SOCKET,
            f"a1\x00/{SOCKET}",
            f"a1 /{SOCKET}",
            f"a1\n/{SOCKET}",
        ):
            assert b"is no socket of a job" in ask(line, socket_path), socket_path
        for socket_path in (str(replica), "a1/other.sock", "a1/", f"a1/{SOCKET}\n"):
            assert b"is no socket of a replica" in ask(line, socket_path), socket_path
    for socket_path in (b"\xff/serve.sock", "a" * 5000, f"{'a' * 300}/{SOCKET}"):
        assert ask(line, socket_path).startswith(b"-"), socket_path
    assert ask(line, f"a2/{SOCKET}").startswith(b"-"), "there is no such job"
    assert ask(line, f"a1/{SOCKET}") == b"+", "and it goes on"


def test_links_are_not_followed(line: socket.socket, replica: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    (jobs / "a2").mkdir()
    (jobs / "a2" / "work").symlink_to(replica)
    (jobs / "a3" / "work").mkdir(parents=True)
    (jobs / "a3" / "work" / SOCKET).symlink_to(replica / SOCKET)
    (jobs / "a4").symlink_to(jobs / "a1")
    for uid in ("a2", "a3", "a4"):
        assert ask(line, f"{uid}/{SOCKET}").startswith(b"-"), uid
    assert ask(line, f"a1/{SOCKET}") == b"+", "and it goes on"


@pytest.mark.skipif(os.geteuid() != 0, reason="other users' files need root")
def test_a_socket_of_another_user_is_not_opened(
    line: socket.socket, replica: Path, tmp_path: Path
) -> None:
    """A hard link brings a neighbour's socket into a tenant's folder."""
    work = tmp_path / "jobs" / "a2" / "work"
    work.mkdir(parents=True)
    os.link(replica / SOCKET, work / SOCKET)
    assert ask(line, f"a2/{SOCKET}") == b"+", "the control: it is theirs"
    os.chown(work, 12345, 12345)
    assert b"is no socket of the job" in ask(line, f"a2/{SOCKET}")
