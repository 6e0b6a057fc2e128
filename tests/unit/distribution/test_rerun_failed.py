"""Tests that fail run once more, alone; what fails twice fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "tools" / "rerun_failed.py"
FAILS_ONCE = """
import pathlib

def test_of_luck():
    seen = pathlib.Path("seen")
    before = seen.exists()
    seen.touch()
    assert before

def test_that_holds():
    pass
"""


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_some.py").write_text(tests)
    command = [sys.executable, str(PROGRAM), "-q", *(options or ("-p", "no:xdist"))]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_what_fails_once_passes_and_is_named_as_flaky(tmp_path: Path) -> None:
    done = run(tmp_path, FAILS_ONCE)
    assert done.returncode == 0
    assert "FLAKY test_some.py::test_of_luck" in done.stdout
    assert "1 passed" in done.stdout  # the second time only what failed runs


def test_what_fails_in_a_slice_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it is the first of all tests, which is in no slice but the first."""
    monkeypatch.setenv("SOME_SLICE", "1")
    (tmp_path / "conftest.py").write_text(
        "import os\n\ndef pytest_collection_modifyitems(items):\n"
        "    if 'SOME_SLICE' in os.environ:\n        items[:] = items[1::2]\n"
    )
    tests = "def test_that_comes_first():\n    pass\n" + FAILS_ONCE
    done = run(tmp_path, tests)
    assert done.returncode == 0
    assert "FLAKY test_some.py::test_of_luck" in done.stdout


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_wrong():\n    assert False\n")
    assert done.returncode == 1
    assert "FLAKY" not in done.stdout


def test_many_failures_are_no_accident(tmp_path: Path) -> None:
    tests = "\n".join(f"def test_{n}():\n    assert False\n" for n in range(6))
    done = run(tmp_path, tests)
    assert done.returncode == 1
    assert "once more" not in done.stdout


def test_a_file_that_cannot_be_read_is_not_run_again(tmp_path: Path) -> None:
    done = run(tmp_path, "import no_such_module\n")
    assert done.returncode == 2
    assert "once more" not in done.stdout


@pytest.mark.parametrize("second", ["seen", "no_such_file"])
def test_a_test_of_a_group_runs_again_alone(second: str, tmp_path: Path) -> None:
    tests = FAILS_ONCE.replace(
        "assert before", f"assert pathlib.Path({second!r}).exists() and before"
    )
    mark = "@pytest.mark.xdist_group('some group')\ndef test_of_luck"
    tests = "import pytest\n" + tests.replace("def test_of_luck", mark)
    done = run(tmp_path, tests, "-p", "xdist.plugin", "-n", "2", "--dist", "loadgroup")
    assert done.returncode == (0 if second == "seen" else 1), done.stdout
    assert ("FLAKY test_some.py::test_of_luck\n" in done.stdout) == (second == "seen")
    second_run = done.stdout.partition("once more, alone")[2]
    assert ("1 passed in" if second == "seen" else "1 failed in") in second_run
