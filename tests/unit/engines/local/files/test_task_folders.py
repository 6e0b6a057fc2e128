"""What each task of a gang of several has for itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.engines.local.files.task_folders import TaskFolders
from cloud_ml.engines.local.isolation.sandbox import View

NAMES = ("worker-0", "worker-1")


@pytest.fixture
def folders(tmp_path: Path) -> TaskFolders:
    for name in ("work", "tmp", "etc"):
        (tmp_path / name).mkdir()
    (tmp_path / "etc" / "hosts").write_text("127.0.0.1 localhost\n10.0.0.7 worker-0\n")
    return TaskFolders(
        NAMES,
        work=tmp_path / "work",
        tmp=tmp_path / "tmp",
        hosts=tmp_path / "hosts",
        show=lambda path: path,
    )


def test_every_task_has_folders_that_stay(tmp_path: Path, folders: TaskFolders) -> None:
    folders.make(None, str(tmp_path / "etc"))
    (tmp_path / "work" / "tasks" / "worker-1" / "kept").write_text("")
    folders.make(None, str(tmp_path / "etc"))
    assert (tmp_path / "work" / "tasks" / "worker-1" / "kept").exists()
    assert sorted(one.name for one in (tmp_path / "tmp").iterdir()) == list(NAMES)


def test_the_names_of_the_gang_win_over_those_of_the_machine(
    tmp_path: Path, folders: TaskFolders
) -> None:
    folders.make(None, str(tmp_path / "etc"))
    lines = (tmp_path / "hosts").read_text().splitlines()
    assert lines.index("127.0.0.1 worker-0") < lines.index("10.0.0.7 worker-0")


def test_a_task_sees_its_own_tmp_and_name(tmp_path: Path, folders: TaskFolders) -> None:
    view = View(writable=[("/w", "/work"), (str(tmp_path / "tmp"), "/tmp")], hostname="job")
    seen = folders.view_of("worker-1", view)
    assert seen.hostname == "worker-1"
    assert seen.writable == [("/w", "/work"), (str(tmp_path / "tmp" / "worker-1"), "/tmp")]
    assert (str(tmp_path / "hosts"), "/etc/hosts") in seen.read_only


@pytest.mark.parametrize("at", ["tasks", "tasks/worker-0"])
def test_a_link_that_an_earlier_attempt_left_is_not_followed(
    tmp_path: Path, folders: TaskFolders, at: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "work" / at).parent.mkdir(exist_ok=True)
    (tmp_path / "work" / at).symlink_to(outside)
    owner = outside.stat().st_uid
    folders.make((4711, 4711) if os.geteuid() == 0 else None, str(tmp_path / "etc"))
    assert not list(outside.iterdir())
    assert outside.stat().st_uid == owner
