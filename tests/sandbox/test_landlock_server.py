"""A whole server without bubblewrap: what its users need works behind Landlock, environments
included.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.engines.local.isolation import landlock
from support.server import serving, trainer

pytestmark = pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock")

_CODE = """
import json, os, multiprocessing, socket, subprocess, sys, tempfile
def double(n): return 2 * n
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        numbers = pool.map(double, [1, 2, 3])
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    said = subprocess.run([sys.executable, "-m", "pip", "--version"], stdout=subprocess.PIPE).returncode
    socket.getaddrinfo("localhost", 80)
    with open("/dev/null", "w") as null:
        null.write("x")
    try:
        os.listdir("/root")
        seen = "root"
    except PermissionError:
        seen = "nothing"
    print(json.dumps([numbers, said, seen]))
"""


@pytest.fixture
def umask_of_the_unit() -> Iterator[None]:
    """The unit of systemd has ``UMask=0077``."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_a_trainer_runs(tmp_path: Path, umask_of_the_unit: None) -> None:
    (tmp_path / "server").mkdir()
    with serving(tmp_path / "server", CLOUDML_ENGINE_SANDBOX="landlock") as server:
        package = trainer(tmp_path / "code", _CODE)
        ran = server.cli(
            "jobs", "submit", "inside", "trainer.task", str(package), "-W", timeout_s=110
        ).good()
        assert '[[2, 4, 6], 0, "nothing"]' in ran.out
        if os.geteuid() == 0:  # users of jobs read what the server of root makes
            opened = [folder.stat().st_mode & 0o055 for folder in server.data.glob("packages/*")]
            assert opened == [0o055]
        assert "Landlock" in server.cli("doctor", "isolation").out
