"""Processes that are signalled by handle, and not by a number that may be another's by now."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from cloud_ml.process_handles import ProcessHandle, has_open, logs_into, with_log_in


def test_a_process_is_ended_through_its_handle_and_no_other_one() -> None:
    with subprocess.Popen(["sleep", "3600"]) as process:
        try:
            assert ProcessHandle.open(process.pid, lambda _: False) is None
            handle = ProcessHandle.open(process.pid, lambda pid: pid == process.pid)
            assert handle is not None
            with handle:
                assert handle.is_alive
                assert not handle.wait(0.01)
                handle.send(signal.SIGTERM)
                assert handle.wait(10)
                process.wait()  # its number may be given to others from here on
                handle.send(signal.SIGKILL)
                assert not handle.is_alive
            assert ProcessHandle.open(process.pid, lambda _: True) is None
        finally:
            process.kill()


def test_a_daemon_is_known_by_the_folder_of_its_log(tmp_path: Path) -> None:
    ours, copy = tmp_path / "engine", tmp_path / "engine-copy"
    for folder in (ours, copy):
        folder.mkdir()
    with (
        (ours / "spawner.log").open("ab") as log,
        subprocess.Popen(["sleep", "3600"], stderr=log) as process,
    ):
        try:
            assert list(with_log_in(ours)) == [process.pid]
            assert list(with_log_in(copy)) == []
            (ours / "spawner.log").rename(ours / "spawner.log.1")
            assert logs_into(process.pid, f"{ours}/"), "also after its log was rotated"
        finally:
            process.kill()


def test_whether_a_process_has_a_file_open(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.touch()
    assert not has_open(os.getpid(), file.stat())
    with file.open():
        assert has_open(os.getpid(), file.stat())
        assert not has_open(2**30, file.stat())
