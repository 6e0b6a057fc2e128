"""A disk that is mounted with noexec is told when the server starts, not by each job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.engines.local.probe import probe
from cloud_ml.settings import EngineSettings


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    command = ["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("to mount a disk takes root")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def _notes(root: Path, environments: Path) -> list[str]:
    settings = EngineSettings(sandbox="none", cgroups="none", network="none")
    found = probe(
        settings, root=root, environments_home=environments, runtimes_dir=root, uv=root / "uv"
    )
    return [note for note in found.missing if "noexec" in note]


def test_environments_on_a_disk_that_runs_nothing(
    disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    usual = tmp_path_factory.mktemp("usual")
    (note,) = _notes(usual, disk / "environments")
    assert f"NumPy cannot be loaded: {disk / 'environments'} is on a disk mounted with" in note
    assert "--environments-dir" in note
    assert _notes(usual, usual / "environments") == []
