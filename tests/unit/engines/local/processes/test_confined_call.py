"""What a function that reads a tenant's bytes can reach, should one of those bytes take it over."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.engines.local.isolation import landlock, seccomp
from cloud_ml.engines.local.processes import confined_call
from cloud_ml.engines.local.processes.launch import Fence

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a tenant's user"),
    pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock"),
]
USER = (1_600_001, 1_600_001)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    inside = tmp_path / "inside"
    inside.mkdir()
    return inside


def _run(
    folder: Path, function: Callable[[], object], timeout_s: float = 30.0, *inputs: int
) -> int:
    fence = Fence("", "", "", seccomp.program(), USER, landlock.version())
    return confined_call.run(
        fence,
        lambda: function() and None,
        folder=folder,
        inputs=inputs,
        group=None,
        timeout_s=timeout_s,
    )


def _exit(code: int) -> None:
    os._exit(code)


def test_it_works_in_its_folder_with_what_it_is_given(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("given")
    (tmp_path / "private").chmod(0o600)
    with (tmp_path / "private").open("rb") as given:
        assert (
            _run(
                folder,
                lambda: Path("made").write_bytes(os.read(given.fileno(), 100)),
                30.0,
                given.fileno(),
            )
            == 0
        )
    assert (folder / "made").read_text() == "given"
    assert (folder / "made").stat().st_uid == USER[0]


def test_it_reads_and_writes_nothing_else(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "open").write_text("to all")
    tmp_path.chmod(0o755)
    (tmp_path / "open").chmod(0o666)

    def reached() -> None:
        found = 0
        for number, path in enumerate(
            (str(tmp_path / "open"), "../open", "/etc/shadow", "/root", "/var/log")
        ):
            try:
                list(Path(path).iterdir()) if Path(path).is_dir() else Path(path).read_bytes()
            except OSError:
                continue
            found |= 1 << number
        _exit(found)

    assert _run(folder, reached) == 0
    assert _run(folder, lambda: (tmp_path / "open").write_text("changed")) == 1
    assert (tmp_path / "open").read_text() == "to all"


def test_it_has_none_of_the_supervisors_descriptors(folder: Path) -> None:
    mine, other = socket.socketpair()
    with mine, other:
        assert (
            _run(folder, lambda: _exit(len(list(Path("/proc/self/fd").iterdir())))) == 4
        )  # and the one that lists


def test_it_cannot_connect_signal_or_trace(folder: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        assert _run(folder, lambda: socket.create_connection(listener.getsockname(), 2)) == 1 or (
            landlock.version() < 4
        )
    assert _run(folder, lambda: os.kill(os.getppid(), 0)) == 1
    assert _run(folder, lambda: os.setresuid(0, 0, 0)) == 1


def test_its_memory_is_bounded(folder: Path) -> None:
    assert _run(folder, lambda: bytearray(2 * confined_call.MEMORY_BYTES)) == 1
    assert _run(folder, lambda: bytearray(confined_call.MEMORY_BYTES // 2)) == 0


def test_its_time_is_bounded(folder: Path) -> None:
    with pytest.raises(TimeoutError):
        _run(folder, signal.pause, 0.2)


def test_its_processor_time_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spin() -> None:
        while True:
            pass

    monkeypatch.setattr(confined_call, "CPU_S", 1)
    assert _run(folder, spin) in (-signal.SIGXCPU, -signal.SIGKILL)


def test_a_crash_is_its_own(folder: Path) -> None:
    assert _run(folder, lambda: os.kill(os.getpid(), signal.SIGSEGV)) == -signal.SIGSEGV
