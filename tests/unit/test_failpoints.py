"""Failpoints are off unless two variables say that they are meant."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_ml import failpoints
from cloud_ml.errors import InvalidRequest

POINT = "state.commit.before"
PROGRAM = f"""
import os
from cloud_ml import failpoints
failpoints.arm(os.environ)
failpoints.here("{POINT}")
print("passed", flush=True)
failpoints.here("{POINT}")
print("passed again", flush=True)
"""


def run(folder: Path, *orders: str, **variables: str) -> subprocess.CompletedProcess[str]:
    for order in orders:
        folder.joinpath(order).write_text("")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("CLOUDML_")
    } | variables
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def variables(folder: Path) -> dict[str, str]:
    return {failpoints.FOLDER: str(folder), failpoints.ALLOWED: failpoints.WORD}


def test_nothing_happens_without_the_variables(tmp_path: Path) -> None:
    assert run(tmp_path, POINT).stdout == "passed\npassed again\n"
    assert (
        run(tmp_path, POINT, CLOUDML_FAILPOINTS_ALLOWED=failpoints.WORD).stdout
        == "passed\npassed again\n"
    )


@pytest.mark.parametrize("word", ["", "1", "yes"])
def test_a_folder_alone_is_refused(tmp_path: Path, word: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        failpoints.arm({failpoints.FOLDER: str(tmp_path), failpoints.ALLOWED: word})
    assert (refused.value.field, refused.value.value) == (failpoints.FOLDER, str(tmp_path))


def test_an_order_is_carried_out_once_where_it_says(tmp_path: Path) -> None:
    killed = run(tmp_path, POINT, **variables(tmp_path))
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
    assert [file.name for file in tmp_path.iterdir()] == [f"{POINT}.reached"]
    assert run(tmp_path, **variables(tmp_path)).stdout == "passed\npassed again\n"
    assert (
        run(tmp_path, "state.commit.after", **variables(tmp_path)).stdout
        == "passed\npassed again\n"
    )
