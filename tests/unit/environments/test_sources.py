"""Sources are read in a confined process as they are read by anybody: it has no way through the
folders above its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.engines.local.isolation import landlock, seccomp
from cloud_ml.engines.local.processes import confined_call
from cloud_ml.engines.local.processes.launch import Fence
from cloud_ml.environments.builder import sources
from support.environments import pack

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a tenant's user"),
    pytest.mark.skipif(landlock.version() == 0, reason="this kernel has no Landlock"),
]
USER = (1_600_001, 1_600_001)
SCRIPT = (
    "# /// script\n# dependencies = ['six']\n# requires-python = '>=3.9'\n# ///\nimport torch\n"
)
LOCK = "lock-version = '1.0'\n[[packages]]\nname = 'six'\nversion = '1.17.0'\n"
KINDS: dict[str, Mapping[str, str]] = {
    "modules": {"task.py": "import helper\n", "helper.py": ""},
    "modules in src": {"src/task.py": SCRIPT, "README.md": ""},
    "requirements in several files": {
        "task.py": "",
        "requirements.txt": "-r r/a.txt",
        "r/a.txt": "six",
    },
    "a list of requirements": {
        "task.py": "",
        "pyproject.toml": "[project]\ndependencies = ['six']\n",
    },
    "a file of locks": {"task.py": "", "pylock.toml": LOCK},
    "a setup.py of constants": {
        "task.py": "",
        "own/__init__.py": "",
        "requirements.txt": "six",
        "setup.py": "from setuptools import setup\n"
        "setup(name='own', version='1', packages=['own'], install_requires=['six>=1'])\n",
    },
    "what is wrong": {"task.py": "", "requirements.txt": "no name!"},
    "what was not sent": {"task.py": "", "requirements.txt": "-r other.txt"},
    "what is not understood": {"task.py": "", "pyproject.toml": "a = " + "[" * 100_000},
}


@pytest.mark.parametrize("kind", KINDS)
def test_sources_are_described_without_a_way_to_their_folder(tmp_path: Path, kind: str) -> None:
    code = tmp_path / "code"
    for name, text in KINDS[kind].items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    _is_described_alike(tmp_path, pack(code, tmp_path / "code.tar.gz", "."), "code.tar.gz")


def test_so_is_a_script(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(SCRIPT)
    report = _is_described_alike(tmp_path, tmp_path / "task.py", "task.py")
    assert report["requires"] == ["six"]


def test_so_is_a_link_between_files(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "task.py").touch()
    (code / "base.txt").write_text("six")
    (code / "requirements.txt").symlink_to("base.txt")
    report = _is_described_alike(tmp_path, pack(code, tmp_path / "code.tar.gz", "."), "code.tar.gz")
    assert report["requires"] == ["six"]


def _is_described_alike(tmp_path: Path, archive: Path, name: str) -> dict[str, Any]:
    """Stage ``archive`` in a confined process and in none, and return what both say."""
    closed, free = tmp_path / "closed" / "out", tmp_path / "free"
    closed.mkdir(parents=True)
    closed.parent.chmod(0o700)
    free.mkdir()
    fence = Fence("", "", "", seccomp.program(), USER, landlock.version())
    with archive.open("rb") as sent:
        code = confined_call.run(
            fence,
            lambda: sources.stage(sent.fileno(), name, "task", Path()),
            folder=closed,
            inputs=[sent.fileno()],
            group=None,
            timeout_s=30.0,
        )
    assert code == 0
    with archive.open("rb") as sent:
        sources.stage(os.dup(sent.fileno()), name, "task", free)  # which is closed
    report = json.loads((closed / "report.json").read_text())
    assert report == json.loads((free / "report.json").read_text())
    return report
