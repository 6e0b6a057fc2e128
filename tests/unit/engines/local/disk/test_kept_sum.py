"""The sum of what ended jobs keep: it is that of the folder, whatever became of who changed it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.engines.local.disk import kept_disk
from cloud_ml.engines.local.disk.kept_disk import KeptDisk

TENANT = 1


class Kept(KeptDisk):
    """What ended jobs keep below a folder, by names and sizes."""

    def __init__(self, folder: Path, boot: str = "this") -> None:
        super().__init__(folder / "kept", folder / "jobs", boot)
        self.listed = folder / "kept" / str(TENANT)
        self.jobs = folder / "jobs"

    def end(self, uid: str, size: int) -> None:
        (self.jobs / uid / "work").mkdir(parents=True, exist_ok=True)
        self.note(TENANT, uid, at_least=size)

    def by_names(self) -> int:
        return sum(int(path.suffix[1:]) for path in self.listed.iterdir())


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def _never_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    def listing(folder: Path) -> int:
        raise AssertionError(f"{folder} is listed")

    monkeypatch.setattr(kept_disk, "_count", listing)


MIB = 2**20


def test_a_start_lists_no_ended_jobs(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        kept.end(f"job-{number}", MIB)
    assert kept.total(TENANT) == 5 * MIB
    _never_lists(monkeypatch)
    kept.end("job-5", 2 * MIB)
    kept.end("job-0", 3 * MIB)
    kept.drop("job-1")
    assert kept.total(TENANT) == 8 * MIB == kept.by_names()
    assert kept.total(TENANT, "job-0", MIB) == 7 * MIB
    assert kept.total(TENANT, "job-1", MIB) == 8 * MIB, "what was dropped is not taken off again"


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_process_that_is_killed_while_it_notes_a_job_leaves_no_wrong_sum(
    kept: Kept, before: bool
) -> None:
    kept.end("first", MIB)
    assert kept.total(TENANT) == MIB
    pid = os.fork()
    if pid == 0:
        with kept._sum(str(TENANT)).changing():
            if not before:
                (kept.listed / f"second.{MIB}").touch()
            os._exit(0)
    os.waitpid(pid, 0)
    assert kept.total(TENANT) == kept.by_names() == (1 if before else 2) * MIB
    kept.end("third", MIB)
    assert kept.total(TENANT) == kept.by_names()


def test_what_others_change_in_the_folder_is_seen(kept: Kept) -> None:
    """A supervisor of an older version notes its job without the sum."""
    kept.end("first", MIB)
    assert kept.total(TENANT) == MIB
    facts = kept.listed.stat()
    (kept.listed / f"older.{MIB}").touch()
    os.utime(kept.listed, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert kept.total(TENANT) == 2 * MIB
    kept.end("second", MIB)
    assert kept.total(TENANT) == kept.by_names() == 3 * MIB


def test_after_a_restart_of_the_machine_it_is_counted_again(kept: Kept, tmp_path: Path) -> None:
    kept.end("first", MIB)
    assert kept.total(TENANT) == MIB
    facts = kept.listed.stat()
    (kept.listed / f"first.{MIB}").unlink()
    os.utime(kept.listed, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert Kept(tmp_path, boot="next").total(TENANT) == 0


def test_processes_that_note_jobs_at_once_lose_nothing(kept: Kept) -> None:
    kept.end("first", MIB)
    assert kept.total(TENANT) == MIB
    children = []
    for worker in range(4):
        pid = os.fork()
        if pid == 0:
            for number in range(25):
                kept.end(f"{worker}-{number}", MIB)
                if number % 3 == 0:
                    kept.drop(f"{worker}-{number}")
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    assert kept.total(TENANT) == kept.by_names() == (1 + 4 * 16) * MIB
