"""The bar of an installation comes from the lines that a job's log really has."""

from __future__ import annotations

import os
import sys

import pytest

from cloud_ml.cli.display.installing import Installing, Progress
from cloud_ml.cli.display.states import installation, state_line
from support.fake_api import make_job
from support.terminal import on_a_terminal

MIB = 2**20
BEGINS = b"Processing linear.tar.gz\nInstalling 10 packages that no job has needed here before\n"
ANNOUNCED = (
    b"Downloading numpy (16.1MiB)\nDownloading scikit-learn (8.9MiB)\n"
    b"Downloading pandas (11.8MiB)\nDownloading scipy (33.7MiB)\n"
)
IN_PLACE = b"Installed 10 packages in 142ms\n"
ENDS = IN_PLACE + b"Bytecode compiled 2376 files in 7.07s\n"


def fed(*chunks: bytes) -> Progress | None:
    installing = Installing()
    assert list(installing.passing(iter(chunks))) == list(chunks)
    return installing.now


def test_it_counts_the_bytes_of_what_has_arrived_and_names_the_largest_that_has_not() -> None:
    assert fed(b"Processing linear.tar.gz\n") is None
    assert fed(BEGINS) == Progress(10)
    total = fed(BEGINS, ANNOUNCED)
    assert total is not None
    assert (total.done, round(total.total / MIB, 1), total.current) == (0, 70.5, "scipy")
    some = fed(BEGINS, ANNOUNCED, b"Downloaded scikit-learn\n Downloaded scipy\n")
    assert some is not None
    assert (round(some.done / MIB, 1), some.current) == (42.6, "numpy")
    every = b"".join(
        b"Downloaded %s\n" % name for name in (b"scikit-learn", b"pandas", b"numpy", b"scipy")
    )
    done = fed(BEGINS, ANNOUNCED, every)
    assert done is not None
    assert (done.done, done.current) == (done.total, "")
    compiling = fed(BEGINS, ANNOUNCED, every, IN_PLACE)
    assert compiling is not None
    assert installation(compiling) == "compiling 10 packages"
    assert fed(BEGINS, ANNOUNCED, every, ENDS) is None
    assert fed(BEGINS, IN_PLACE, b"Installed linear.tar.gz with 10 packages\n") is None


def test_chunks_may_end_anywhere_and_a_second_layer_begins_anew() -> None:
    text = BEGINS + ANNOUNCED + b"Downloaded numpy\n"
    assert fed(*(text[at : at + 1] for at in range(len(text)))) == fed(text)
    second = b"Installing 1 package that no job has needed here before\n"
    assert fed(text, ENDS, second) == fed(text, second) == Progress(1)


@pytest.mark.parametrize(
    "line",
    [
        b"Downloading weights (2.0GiB)",  # what code prints once nothing is installed any more
        b"Downloaded weights",
        b"Installing 3 packages",
        b"x" * 100_000,
        b"\xff\xfe (1.0MiB)",
    ],
)
def test_what_the_code_prints_is_no_installation(line: bytes) -> None:
    assert fed(line + b"\n") is None
    assert fed(BEGINS, ENDS, line + b"\n") is None


def test_no_more_is_counted_than_was_to_be_installed() -> None:
    begins = b"Installing 1 package that no job has needed here before\n"
    assert fed(begins, b"Downloading torch (190.0MiB)\nDownloading more (1.0GiB)\n") == Progress(
        1, 0, 190 * MIB, "torch"
    )


def test_the_line_has_a_bar_once_sizes_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloud_ml.cli.display.progress._fancy", lambda _stream: True)
    job = make_job("linear", phase="Starting")
    assert state_line(job, None, Progress(1)) == "linear: Starting: installing 1 package"
    assert state_line(job, None, Progress(34, 412 * MIB, 747 * MIB, "torch")) == (
        "linear: Starting: installing 34 packages ━━━━━╌╌╌╌╌ 412 MiB of 747 MiB · torch"
    )
    assert (
        installation(Progress(2, MIB, MIB)) == "installing 2 packages ━━━━━━━━━━ 1.0 MiB of 1.0 MiB"
    )
    assert state_line(make_job("linear", phase="Running"), None, Progress(2)) == "linear: Running"


@pytest.mark.parametrize(("encoding", "gauge"), [("utf-8", "━━━━━╌╌╌╌╌"), ("ascii", "#####-----")])
def test_the_bar_stands_in_the_line_of_a_terminal(encoding: str, gauge: str) -> None:
    code = (
        "import sys\n"
        "from cloud_ml.cli.display.installing import Progress\n"
        "from cloud_ml.cli.display.progress import spinner\n"
        "from cloud_ml.cli.display.states import installation\n"
        "with spinner(installation(Progress(3, 1 << 20, 2 << 20))): sys.stdin.readline()\n"
    )
    ran = on_a_terminal(
        [sys.executable, "-c", code],
        environment={"PATH": os.environ["PATH"], "PYTHONIOENCODING": encoding},
        react=lambda seen, _pid: b"\n" if "2.0 MiB" in seen else b"",
    )
    assert ran.code == 0
    assert f"installing 3 packages {gauge} 1.0 MiB of 2.0 MiB  0:00" in ran.seen
