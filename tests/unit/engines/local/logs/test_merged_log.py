"""One log of all tasks of a gang."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.engines.local.logs.logfile import LogWriter
from cloud_ml.engines.local.logs.merged_log import MergedLog, TaskLog


@pytest.fixture
def merged(tmp_path: Path) -> MergedLog:
    return MergedLog(LogWriter(tmp_path, "all", 1 << 20))


def task(folder: Path, merged: MergedLog, name: str) -> TaskLog:
    return TaskLog(LogWriter(folder, name, 1 << 20), merged, name)


def test_lines_are_whole_and_in_the_order_of_their_ends(tmp_path: Path, merged: MergedLog) -> None:
    one, two = task(tmp_path, merged, "worker-0"), task(tmp_path, merged, "ps-0")
    one.write(b"a")
    two.write(b"b\nc\n")
    one.write(b"d\ne")
    one.close()
    two.close()
    merged.close()
    expected = "[ps-0] b\n[ps-0] c\n[worker-0] ad\n[worker-0] e\n"
    assert (tmp_path / "all.log").read_text() == expected
    assert (tmp_path / "worker-0.log").read_text() == "ad\ne"
    assert (tmp_path / "ps-0.log").read_text() == "b\nc\n"
    assert merged.written == len(expected)
    assert (one.written, one.tail) == (4, b"ad\ne")


def test_empty_lines_stay(tmp_path: Path, merged: MergedLog) -> None:
    merged.write("a-0", b"\n\nx\n")
    merged.close()
    assert (tmp_path / "all.log").read_text() == "[a-0] \n[a-0] \n[a-0] x\n"


def test_a_line_without_end_is_shown_in_parts(tmp_path: Path, merged: MergedLog) -> None:
    for _ in range(5):
        merged.write("a-0", b"x" * 40_000)
    merged.end("a-0")
    merged.close()
    lines = (tmp_path / "all.log").read_text().splitlines()
    assert "".join(line.removeprefix("[a-0] ") for line in lines) == "x" * 200_000
    assert max(map(len, lines)) < 120_000
