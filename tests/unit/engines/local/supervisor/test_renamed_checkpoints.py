"""What a job renames into the folder of its checkpoints, in a real folder."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml import linux
from cloud_ml.domain.workloads import checkpoints
from cloud_ml.engines.local.supervisor import renamed_checkpoints
from cloud_ml.engines.local.supervisor.renamed_checkpoints import RenamedCheckpoints
from cloud_ml.engines.local.supervisor.signals import StopRequested

NAMES = (".checkpoints", "job-1")


class Watched:
    """A folder that is watched, and the loop that a supervisor has around it."""

    def __init__(self, bucket: Path) -> None:
        self.folder = bucket.joinpath(*NAMES)
        self.selector = selectors.DefaultSelector()
        self.renamed = RenamedCheckpoints(None, 3)
        self.log: list[bytes] = []
        self.renamed.start(self.selector, bucket, NAMES, self.log.append)

    def save(self, name: str, temporary: str = "x.tmp") -> None:
        (self.folder / temporary).write_text("state")
        (self.folder / temporary).rename(self.folder / name)

    def handle(self) -> int:
        events = self.selector.select(0)
        for key, _ in events:
            handle, argument = key.data
            handle(argument)
        return len(events)

    def noted(self) -> list[str]:
        try:
            note = (self.folder / checkpoints.RENAMED).read_bytes()
        except FileNotFoundError:
            return []
        return [one.path for one in checkpoints.parse_saved(note)]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    tmp_path.joinpath(*NAMES).mkdir(parents=True)
    watched = Watched(tmp_path)
    yield watched
    watched.renamed.close()
    watched.selector.close()


def test_each_is_noted_in_its_order(watched: Watched) -> None:
    watched.save("step-1.pt")
    watched.save("step-2.pt")
    assert watched.handle() == 1
    (watched.folder / "step-1.pt").rename(watched.folder / "old-1.pt")
    watched.renamed.look()
    assert watched.noted() == ["step-1.pt", "step-2.pt"]


def test_what_comes_from_another_folder_is_noted(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "step-7").mkdir()
    (tmp_path / "step-7").rename(watched.folder / "step-7")
    watched.renamed.look()
    assert watched.noted() == ["step-7"]


def test_a_job_that_renames_without_end_is_looked_at_now_and_then(watched: Watched) -> None:
    for step in range(50):
        watched.save(f"step-{step}.pt")
    assert watched.handle() == 1
    assert watched.noted() == [f"step-{step}.pt" for step in range(40, 50)]
    watched.save("step-50.pt")
    assert watched.handle() == 0
    due = watched.renamed.due_at
    assert due is not None
    watched.renamed.resume(due - 0.01)
    assert watched.handle() == 0
    watched.renamed.resume(due)
    assert watched.handle() == 1
    assert watched.noted()[-1] == "step-50.pt"


def test_gangs_of_one_process_are_told_apart(watched: Watched, tmp_path: Path) -> None:
    watched.save("earlier")
    watched.renamed.close()
    tmp_path.joinpath("second", *NAMES).mkdir(parents=True)
    second = Watched(tmp_path / "second")
    second.save("later")
    second.renamed.look()
    assert (watched.noted(), second.noted()) == ([], ["later"])
    second.renamed.close()


def test_renames_of_an_earlier_gang_do_not_slow_down_the_next(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renamed_checkpoints, "_MANY", 20)
    for step in range(30):
        watched.save(f"step-{step}.pt")
    watched.renamed.close()
    tmp_path.joinpath("second", *NAMES).mkdir(parents=True)
    second = Watched(tmp_path / "second")
    assert second.handle() == 0
    second.save("one")
    assert second.handle() == 1
    due = second.renamed.due_at
    assert due is not None
    assert due - time.monotonic() < 1
    second.renamed.close()
    second.selector.close()


@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_a_folder_that_the_job_replaces_is_watched_again(watched: Watched, how: str) -> None:
    watched.save("lost")
    if how == "removed":
        shutil.rmtree(watched.folder)
    else:
        watched.folder.rename(watched.folder.with_name("elsewhere"))
    assert watched.handle() == 1
    assert watched.noted() == []
    due = watched.renamed.due_at
    assert due is not None
    watched.folder.mkdir()
    watched.renamed.resume(due)
    watched.save("step-1.pt")
    watched.renamed.look()
    assert watched.noted() == ["step-1.pt"]


def test_a_user_who_watches_as_much_as_one_may_takes_nothing_from_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullWatch(linux.Watch):
        def folder_of_renames(self, descriptor: int) -> int:
            raise OSError(errno.ENOSPC, "too many")

    full = FullWatch()
    monkeypatch.setattr(renamed_checkpoints, "_shared", [((60_001, 60_001), full)])
    tmp_path.joinpath(*NAMES).mkdir(parents=True)
    watched = Watched(tmp_path)
    watched.save("step-1.pt")
    watched.renamed.look()
    assert (watched.noted(), watched.log) == (["step-1.pt"], [])
    assert full.descriptor == -1
    watched.renamed.close()
    watched.selector.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as others")
def test_a_signal_while_a_watch_is_made_leaves_the_supervisor_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seteuid_with_signal(uid: int) -> None:
        seteuid(uid)
        if uid:
            raise StopRequested

    seteuid = os.seteuid
    monkeypatch.setattr(os, "seteuid", seteuid_with_signal)
    monkeypatch.setattr(renamed_checkpoints, "_shared", [])
    tmp_path.joinpath(*NAMES).mkdir(parents=True)
    renamed = RenamedCheckpoints((60_001, 60_002), 1)
    with selectors.DefaultSelector() as selector, pytest.raises(StopRequested):
        renamed.start(selector, tmp_path, NAMES, _fail)
    assert os.geteuid() == 0


@pytest.mark.parametrize("kind", ["link", "second name", "pipe", "folder"])
def test_nothing_is_written_to_what_is_not_the_jobs_own_file(
    watched: Watched, kind: str, tmp_path: Path
) -> None:
    note, foreign = watched.folder / checkpoints.RENAMED, tmp_path / "foreign"
    foreign.write_text("untouched")
    if kind == "link":
        note.symlink_to(foreign)
    elif kind == "second name":
        note.hardlink_to(foreign)
    elif kind == "pipe":
        os.mkfifo(note)
    else:
        note.mkdir()
    watched.save("step-1.pt")
    watched.renamed.look()
    assert foreign.read_text() == "untouched"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_the_note_is_the_jobs(tmp_path: Path) -> None:
    tmp_path.joinpath(*NAMES).mkdir(parents=True)
    renamed = RenamedCheckpoints((60_001, 60_002), 1)
    with selectors.DefaultSelector() as selector:
        renamed.start(selector, tmp_path, NAMES, _fail)
        assert os.geteuid() == 0
        folder = tmp_path.joinpath(*NAMES)
        for step in (1, 2):
            (folder / "x.tmp").touch()
            (folder / "x.tmp").rename(folder / f"step-{step}")
            renamed.look()
        renamed.close()
    facts = (folder / checkpoints.RENAMED).stat()
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (60_001, 60_002, 0o600)
    assert len(checkpoints.parse_saved((folder / checkpoints.RENAMED).read_bytes())) == 2


def test_without_a_watch_the_job_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> None:
        raise OSError(24, "too many")

    tmp_path.joinpath(*NAMES).mkdir(parents=True)
    monkeypatch.setattr(renamed_checkpoints, "_shared", [])
    monkeypatch.setattr("cloud_ml.linux.Watch", none_left)
    watched = Watched(tmp_path)
    watched.renamed.look()
    watched.renamed.resume(1e9)
    watched.renamed.close()
    watched.selector.close()
    assert watched.log == [
        b"cloudml: checkpoints that are renamed will not be found: "
        b"the limits of fs.inotify are reached\n"
    ]


def _fail(line: bytes) -> None:
    raise AssertionError(line)
