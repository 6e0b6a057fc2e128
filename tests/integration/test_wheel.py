"""The wheel of ``make wheel``: the same bytes twice, everything in it, and a server that runs
from it alone.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cloud_ml.bootstrap.programs import find_uv
from support.environments import EXAMPLES
from support.server import RealServer

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / ".git").exists(), reason="the wheel is built from a git checkout"
    ),
]


def _build(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, str(ROOT / "tools/wheel.py"), str(folder)], check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(tmp_path_factory.mktemp("dist"))


def test_the_same_commit_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    digests = [hashlib.sha256(one.read_bytes()).hexdigest() for one in (wheel, _build(tmp_path))]
    assert digests[0] == digests[1]


def test_every_file_of_the_package_is_in_it_with_licence_and_locks(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    command = ["git", "ls-tree", "-r", "--name-only", "HEAD", "src/cloud_ml"]
    listed = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    assert {name.removeprefix("src/") for name in listed} == {
        name for name in names if name.startswith("cloud_ml/")
    }
    assert "cloud_ml/py.typed" in names
    stem = "-".join(wheel.name.split("-")[:2])
    assert f"{stem}.dist-info/licenses/LICENSE" in names
    assert {
        f"{stem}.data/data/share/cloud-ml/locks/{one}.txt" for one in ("all", "server", "postgres")
    } <= names


@pytest.mark.timeout(300)
def test_a_server_runs_from_it_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """As the install page has it: our wheel first, then what its lock names."""
    home, uv = tmp_path / "venv", str(find_uv())
    for command in (
        [uv, "venv", "-q", "--python", sys.executable, str(home)],
        [uv, "pip", "install", "-q", "--python", str(home), "--no-deps", str(wheel)],
        [uv, "pip", "install", "-q", "--python", str(home), "--require-hashes", "-r",
         str(home / "share/cloud-ml/locks/server.txt")],
        [uv, "pip", "check", "-q", "--python", str(home)],
    ):  # fmt: skip
        subprocess.run(command, check=True, cwd=tmp_path)
    (tmp_path / "server").mkdir()
    server = RealServer(tmp_path / "server")
    server.program = home / "bin" / "cloudml"
    try:
        server.start()
        ran = server.cli(
            "jobs", "submit", "first", "trainer.task", str(EXAMPLES / "plain"), "-W"
        ).good()
        assert "Hello from Python" in ran.out
    finally:
        server.destroy()
