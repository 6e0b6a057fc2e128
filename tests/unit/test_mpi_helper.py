"""``cloud_ml_mpi``: what MPI starts in a job in the place of ``ssh``."""

from __future__ import annotations

import ast
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cloud_ml.environments
from support.server import eventually

HELPER = Path(cloud_ml.environments.__file__).parent / "compat" / "job" / "cloud_ml_mpi.py"
SOCKET = ".cloudml-mpi-1-worker-1"


def start(folder: Path, *words: str, path: str = os.defpath) -> subprocess.Popen[str]:
    environment = {
        "CLOUDML_ROLE": "worker",
        "CLOUDML_INDEX": "1",
        "CLOUDML_ATTEMPT": "1",
        "PATH": path,
    }
    return subprocess.Popen(
        [sys.executable, "-S", str(HELPER), *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with start(tmp_path, "work") as process:
        yield process
        process.kill()


def listening(folder: Path) -> socket.socket:
    """A connection to the worker, once that listens."""

    def connected() -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(folder / SOCKET))
        except OSError:
            connection.close()
            return None
        return connection

    found: socket.socket = eventually(connected, "the worker listens")
    return found


def test_old_interpreters_understand_it() -> None:
    tree = ast.parse(HELPER.read_text("utf-8"), feature_version=(3, 6))
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert imported <= {*sys.stdlib_module_names}
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


def test_a_worker_runs_the_command_that_the_agent_hands_to_it(
    tmp_path: Path, worker: subprocess.Popen[str]
) -> None:
    with start(tmp_path, "agent", "worker-1", "echo", '"ran $CLOUDML_INDEX";', "exit 3") as agent:
        assert agent.wait(60) == 0
    assert worker.communicate(timeout=60)[0] == "ran 1\n"
    assert worker.returncode == 3
    assert not (tmp_path / SOCKET).exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_it_ends_by_the_signal_that_its_command_ended_by(
    tmp_path: Path, worker: subprocess.Popen[str], number: signal.Signals
) -> None:
    with start(tmp_path, "agent", "worker-1", f"exec kill -{number.value} $$") as agent:
        assert agent.wait(60) == 0
    assert worker.communicate(timeout=60)[0] == ""
    assert worker.returncode == -number


def test_the_agent_waits_for_a_worker_that_comes_late(tmp_path: Path) -> None:
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stale.bind(str(tmp_path / SOCKET))
    stale.close()  # as a worker leaves it that was killed
    with start(tmp_path, "agent", "worker-1", "echo ran") as agent:
        with start(tmp_path, "work") as worker:
            assert worker.communicate(timeout=60)[0] == "ran\n"
        assert agent.wait(60) == 0


def test_nobody_else_reaches_a_worker_and_it_takes_one_command(
    tmp_path: Path, worker: subprocess.Popen[str]
) -> None:
    with listening(tmp_path) as connection:
        eventually(lambda: not (tmp_path / SOCKET).exists(), "the socket is gone")
        connection.sendall(struct.pack("!I", 4) + b"true")
        assert worker.wait(60) == 0


def test_the_socket_is_its_owners(tmp_path: Path, worker: subprocess.Popen[str]) -> None:
    eventually((tmp_path / SOCKET).exists, "the worker listens")
    assert stat.S_IMODE((tmp_path / SOCKET).stat().st_mode) == 0o600
    assert worker.poll() is None


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (struct.pack("!I", (1 << 20) + 1), "a command of 1048577 bytes came; allowed are 1048576"),
        (struct.pack("!I", 5) + b"true", "the launcher has ended before"),
        (b"", "the launcher has ended before"),
    ],
)
def test_a_command_that_is_too_long_or_cut_does_not_run(
    sent: bytes, message: str, tmp_path: Path, worker: subprocess.Popen[str]
) -> None:
    with listening(tmp_path) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        out = worker.communicate(timeout=60)[0]
    assert message in out
    assert worker.returncode == 1


def test_the_launcher_runs_mpiexec(tmp_path: Path) -> None:
    program = tmp_path / "mpiexec"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    with start(tmp_path, "launch", "2", "-m", "t", "a b", path=str(tmp_path)) as launcher:
        words = launcher.communicate(timeout=60)[0].splitlines()
    assert words[words.index("--host") + 1] == "worker-0:1,worker-1:1"
    assert words[words.index("plm_ssh_agent") + 1].endswith(f"{os.fspath(HELPER)} agent")
    assert ("--allow-run-as-root" in words) is (os.geteuid() == 0)
    assert words[-6:] == [sys.executable, "-m", "mpi4py", "-m", "t", "a b"]


RANK = """
import os, signal, sys

def end(*_):
    os.write(1, b"told\\n")  # print may be at work
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
os.write(1, b"up\\n")
signal.pause()
signal.pause()
"""


def test_a_stop_reaches_the_processes_of_mpi_and_nothing_else(
    tmp_path: Path, worker: subprocess.Popen[str]
) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    command = f"OMPI_COMM_WORLD_RANK=0 {sys.executable} -S rank.py; echo over"
    with start(tmp_path, "agent", "worker-1", command) as agent:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "up\n"
        agent.terminate()  # as the launcher does: it has handed over its command, and ignores it
        worker.terminate()
        assert worker.communicate(timeout=60)[0] == "told\nover\n"
        assert (worker.returncode, agent.wait(60)) == (0, 0)


def test_a_stop_before_there_are_processes_of_mpi_ends_everything(
    tmp_path: Path, worker: subprocess.Popen[str]
) -> None:
    with start(tmp_path, "agent", "worker-1", "echo up; exec sleep 600") as agent:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "up\n"
        worker.terminate()
        assert worker.wait(60) == -signal.SIGTERM
        assert agent.wait(60) == 0


def test_a_stop_while_workers_are_awaited_ends_the_launcher(tmp_path: Path) -> None:
    program = tmp_path / "mpiexec"
    agent = f"{sys.executable} -S {HELPER} agent worker-1 true"
    program.write_text(f"#!/bin/sh\n{agent} &\necho up\nwait $!\n")
    program.chmod(0o755)
    with start(tmp_path, "launch", "2", "-m", "t", path=str(tmp_path)) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "up\n"
        launcher.terminate()
        assert launcher.wait(60) == 128 + signal.SIGTERM


def test_a_worker_that_waits_is_stopped(tmp_path: Path, worker: subprocess.Popen[str]) -> None:
    eventually((tmp_path / SOCKET).exists, "the worker listens")
    worker.terminate()
    assert worker.wait(60) == -signal.SIGTERM


def test_an_environment_without_mpi_is_told(tmp_path: Path) -> None:
    with start(tmp_path, "launch", "2", "-m", "t", path=str(tmp_path)) as launcher:
        out = launcher.communicate(timeout=60)[0]
    assert launcher.returncode == 1
    assert "add the line openmpi to requirements.txt" in out
