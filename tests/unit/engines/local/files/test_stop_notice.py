"""The notice that a task finds when it is told to stop."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cloud_ml.engines.local.files import stop_notice


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def content(folder: Path) -> dict[str, object]:
    found = json.loads((folder / stop_notice.NAME).read_bytes())
    assert isinstance(found, dict)
    return found


def test_a_later_notice_replaces_the_first(tmp_path: Path) -> None:
    (tmp_path / "worker-0").mkdir()
    for reason, grace_s in (("Paused", 30.0), ("Cancelled", 5.0)):
        assert stop_notice.write(tmp_path, ["worker-0"], reason, grace_s)
        assert content(tmp_path / "worker-0")["reason"] == reason
    assert names(tmp_path / "worker-0") == [stop_notice.NAME]


def test_other_users_can_read_it_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert stop_notice.write(tmp_path, (), "Paused", 1.0)
    finally:
        os.umask(before)
    assert (tmp_path / stop_notice.NAME).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["worker-0", f"worker-0/{stop_notice.NAME}"])
def test_no_link_of_the_job_is_followed(tmp_path: Path, name: str) -> None:
    outside, tmp = tmp_path / "outside", tmp_path / "tmp"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    (tmp / name).parent.mkdir(parents=True)
    (tmp / name).symlink_to(outside if name == "worker-0" else outside / "precious")
    stop_notice.write(tmp, ["worker-0"], "Paused", 1.0)
    assert names(outside) == ["precious"]
    assert (outside / "precious").read_text() == "kept"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_something_else_in_its_place_stops_nobody(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / stop_notice.NAME)
    assert stop_notice.write(tmp_path, (), "Paused", 1.0) is (make is os.mkfifo)
    assert names(tmp_path) == [stop_notice.NAME]


def test_a_task_without_its_folder_gets_none(tmp_path: Path) -> None:
    assert not stop_notice.write(tmp_path, ["worker-0"], "Paused", 1.0)
