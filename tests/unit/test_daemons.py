"""A process that outlives the server and does not start: the server says why."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.daemons import Resident
from cloud_ml.errors import Unavailable


def _resident(folder: Path, module: str) -> Resident:
    return Resident("spawner", module, folder, "socket", "spawner.log", "refused", 1000, 1.0)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk that is full."""
    command = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("to mount a disk takes root")
    try:
        (tmp_path / "spawner.log").touch()
        (tmp_path / "data").write_bytes(bytes(4096))
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_the_error_of_the_program_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as failed:
        _resident(tmp_path, "no_such_program").start("{}")
    assert "did not start: " in failed.value.message
    assert failed.value.message.endswith("No module named no_such_program")
    assert "\n" not in failed.value.message
    assert str(tmp_path / "spawner.log") in (failed.value.hint or "")


def test_a_program_that_says_nothing_is_told_by_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="did not start: it ended with code 0"):
        _resident(tmp_path, "keyword").start("{}")


def test_a_full_disk_which_takes_no_log_is_the_reason(full: Path) -> None:
    with pytest.raises(Unavailable, match=f"did not start: the disk of {full} is full"):
        _resident(full, "no_such_program").start("{}")
