"""The launcher runs on whatever Python a job brings along: 3.6 is the oldest."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cloud_ml.launcher
from cloud_ml.launcher import archives
from unit.launcher.archive_makers import EVIL, Evil, Member, hard_link, make_tar, make_zip, symlink

SOURCES = sorted(Path(cloud_ml.launcher.__file__).parent.rglob("*.py"))
TOOL = archives.__file__


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_syntax_is_that_of_3_6_and_nothing_of_ours_is_imported(source: Path) -> None:
    tree = ast.parse(source.read_text(), str(source), feature_version=(3, 6))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {
        node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level
    }
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names - {"__future__"}


def test_the_check_of_the_syntax_can_fail() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("(a := 1)", feature_version=(3, 6))


@pytest.fixture(params=["3.6", "3.7", "3.8", "3.9", "3.10"])
def old_python(request: pytest.FixtureRequest) -> str:
    version = request.param
    candidates = [shutil.which(f"python{version}")]
    if (root := os.environ.get("PYENV_ROOT")) and os.access(root, os.R_OK | os.X_OK):
        candidates += map(str, sorted(Path(root).glob(f"versions/{version}.*/bin/python{version}")))
    for candidate in filter(None, candidates):
        # A shim may be there without an interpreter behind it.
        try:
            answer = subprocess.run(
                [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True,
                check=False,
            )
        except OSError:  # out of reach for this user
            continue
        if answer.stdout.decode().strip() == version:
            return candidate
    pytest.skip(
        f"no Python {version} on this machine (looked for python{version} and below PYENV_ROOT)"
    )


def run(python: str, archive: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", TOOL, "--strip", str(archive), str(target)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
    )


def test_archives_are_unpacked_by_old_interpreters(old_python: str, tmp_path: Path) -> None:
    members = [Member("top/é", b"x" * 1000, mode=0o755), symlink("top/l", "é")]
    archives_made = [
        make_tar(tmp_path / f"a{c}", [*members, hard_link("top/h", "top/é")], f"w:{c}")
        for c in ("gz", "xz")
    ]
    for archive in [*archives_made, make_zip(tmp_path / "z", members)]:
        target = tmp_path / f"{archive.name}-out"
        answer = run(old_python, archive, target)
        assert answer.stderr == ""
        assert json.loads(answer.stdout)["stripped"] == "top"
        assert (target / "l").read_bytes() == b"x" * 1000


def test_evil_archives_are_refused_by_old_interpreters(old_python: str, tmp_path: Path) -> None:
    (tmp_path / "secret").touch()

    def outcome(evil: Evil) -> int:
        archive = make_tar(tmp_path / f"{evil.name}.tar", evil.members_at(tmp_path))
        return run(old_python, archive, tmp_path / evil.name).returncode

    chosen = [
        evil
        for evil in EVIL
        if evil.name in {"parent", "through a link out", "hard link up", "pipe"}
    ]
    assert [outcome(evil) for evil in chosen] == [1, 1, 1, 1]
    assert not (tmp_path / "planted").exists()
