"""``pandas.read_csv("fds://…")``: the same program in a job, and outside of jobs with the SDK."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.client_environments import OURS, client_environment
from support.server import RealServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PANDAS = "pandas==2.3.3"
_CODE = """
import fsspec, pandas, sys

bucket = "fds://cloudml/"
table = pandas.read_csv(bucket + "frames/in.csv")
print("sum", table.b.sum())
table.assign(c=table.a + table.b).to_csv(bucket + sys.argv[1] + "/made.csv", index=False)
fs = fsspec.filesystem("fds")
print("made", fs.glob(bucket + sys.argv[1] + "/*.csv"))
print("part", fs.cat_file(bucket + "frames/in.csv", 4, 7))
try:
    pandas.read_csv(bucket + "frames/none.csv")
except FileNotFoundError as error:
    print("error", "fds://cloudml/frames/none.csv" in str(error))
"""


@pytest.fixture(scope="module")
def script(server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    server.client().storage.upload_bytes(b"a,b\n1,2\n3,4\n", "fds://cloudml/frames/in.csv")
    file = tmp_path_factory.mktemp("code") / "frames.py"
    file.write_text(_CODE)
    return file


def _check(server: RealServer, output: str, folder: str) -> None:
    words = ["sum 6", f"made ['cloudml/{folder}/made.csv']", "part b'1,2'", "error True"]
    assert all(word in output for word in words), output
    with server.client().storage.open(f"fds://cloudml/{folder}/made.csv") as made:
        assert made.read() == b"a,b,c\n1,2,3\n3,4,7\n"


def test_in_a_job_without_keys(server: RealServer, script: Path) -> None:
    packages = ("--install", _PANDAS, "--install", "fsspec")
    made = ("jobs", "submit", "-W", str(script), "-n", "frames", *packages)
    ran = server.cli(*made, "--", "frames/job", timeout_s=400).good()
    _check(server, ran.out, "frames/job")


def test_outside_of_jobs_with_the_sdk(server: RealServer, script: Path) -> None:
    programs = client_environment("pandas", _PANDAS, f"{OURS}[fsspec]")
    proof = {
        "CLOUDML_ENDPOINT": server.endpoint,
        "CLOUDML_ACCESS_KEY": server.credentials["access_key"],
        "CLOUDML_SECRET_KEY": server.credentials["secret_key"],
    }
    ran = subprocess.run(
        [programs / "python", script, "frames/outside"],
        env={"PATH": os.environ["PATH"], "HOME": str(server.folder), **proof},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    _check(server, ran.stdout, "frames/outside")
