"""Reports of a job that would have something else be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.domain.workloads import progress
from cloud_ml.engines.local.files import task_reports

LINE = b'\n{"time": 1, "step": %d}\n'


def test_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "worker-0"
    folder.mkdir()
    assert task_reports.version(tmp_path, ["worker-0"]) is None
    with (folder / task_reports.NAME).open("wb") as file:
        file.truncate(1 << 40)  # takes nothing of the disk
        file.seek(0, os.SEEK_END)
        file.write(LINE % 7)
    found = task_reports.read(tmp_path, ["worker-0"])
    assert found is not None
    assert found.step == 7
    before = task_reports.version(tmp_path, ["worker-0"])
    with (folder / task_reports.NAME).open("ab") as file:
        file.write(LINE % 8)
    assert task_reports.version(tmp_path, ["worker-0"]) != before


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "device", "folder link"])
def test_only_a_plain_file_is_read(kind: str, tmp_path: Path) -> None:
    foreign, tmp = tmp_path / "foreign", tmp_path / "tmp"
    foreign.mkdir()
    tmp.mkdir()
    (foreign / task_reports.NAME).write_bytes(LINE % 9)
    below, path = ["worker-0"], tmp / "worker-0" / task_reports.NAME
    if kind == "folder link":
        (tmp / "worker-0").symlink_to(foreign)
    else:
        (tmp / "worker-0").mkdir()
    if kind == "link":
        path.symlink_to(foreign / task_reports.NAME)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    assert task_reports.read(tmp, below) is None
    assert task_reports.version(tmp, below) is None


def test_checkpoints_are_read_from_both_notes(tmp_path: Path) -> None:
    assert task_reports.noted_checkpoints(tmp_path, ["none", "here"]) == []
    (tmp_path / ".saved.jsonl").write_bytes(b'{"path": "a", "step": 3, "time": 1}\n{"pa')
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/x/model.ckpt-900"\n')
    found = task_reports.noted_checkpoints(tmp_path, [])
    assert [(one.path, one.step) for one in found] == [("model.ckpt-900", 900), ("a", 3)]
    assert progress.milestone_of([], found).step == 900
