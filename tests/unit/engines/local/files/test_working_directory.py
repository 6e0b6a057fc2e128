"""The private copy of what was sent: whole or not at all, once for each job, and never a way out
of it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.domain.workloads.reasons import Reason
from cloud_ml.engines.local.files import job_files
from cloud_ml.engines.local.files.working_directory import (
    MAX_DEPTH,
    CannotCopy,
    CopyLimits,
    Manifest,
    SentFile,
    make_once,
    read_manifest,
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job" / "work").mkdir(parents=True)
    return tmp_path / "job"


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    folder = tmp_path / "sent"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text("print()")
    (folder / "run.sh").write_text("true")
    (folder / "run.sh").chmod(0o555)
    (folder / "data" / "churn.csv").write_text("a,b")
    os.utime(folder / "data" / "churn.csv", ns=(5, 1_500_000_000_123_456_789))
    (folder / "latest.csv").symlink_to("data/churn.csv")
    return folder


def _make(source: Path | None, job: Path, room: CopyLimits | None = None) -> Path:
    make_once(source, job, user=None, room=room or CopyLimits())
    return job / "work" / "code"


def test_the_copy_is_like_what_was_sent_and_shares_no_file_with_it(sent: Path, job: Path) -> None:
    code = _make(sent, job)
    assert (code / "latest.csv").readlink() == Path("data/churn.csv")
    assert (code / "run.sh").stat().st_mode & 0o777 == 0o755, "its owner may write to everything"
    (code / "data" / "churn.csv").write_text("changed")
    assert (sent / "data" / "churn.csv").read_text() == "a,b"
    assert {path.stat().st_nlink for path in code.rglob("*.*") if path.is_file()} == {1}


def test_the_manifest_tells_what_a_job_has_made_and_changed(sent: Path, job: Path) -> None:
    assert read_manifest(job) is None
    code = _make(sent, job)
    (code / "model.bin").write_text("weights")
    (code / "run.sh").write_text("TRUE")  # as long as it was
    manifest = read_manifest(job)
    assert manifest is not None
    assert set(manifest.files) == {"train.py", "run.sh", "data/churn.csv"}
    assert manifest.files["data/churn.csv"] == SentFile(3, 1_500_000_000_123_456_789)
    assert manifest.links == {"latest.csv": "data/churn.csv"}
    with job_files.open_working_directory(job, os.geteuid()) as directory:
        assert directory is not None
        assert {file.path for file in directory.files(lambda _: True)} == {b"model.bin", b"run.sh"}


def test_a_later_attempt_finds_what_the_first_has_left(sent: Path, job: Path) -> None:
    code = _make(sent, job)
    (code / "checkpoint").touch()
    (code / "train.py").unlink()
    _make(sent, job)
    assert (code / "checkpoint").exists()
    assert not (code / "train.py").exists()


def test_what_a_supervisor_that_was_killed_has_left_is_made_again(sent: Path, job: Path) -> None:
    code = _make(sent, job)
    (job / "sent.json").unlink()
    (code / "train.py").write_text("half")
    (job / ".code").mkdir()
    (job / ".code" / "train.py").touch()
    assert (_make(sent, job) / "train.py").read_text() == "print()"
    assert sorted(path.name for path in job.iterdir()) == ["sent.json", "work"]


def test_a_link_in_the_place_of_the_working_directory_is_not_followed(
    sent: Path, job: Path, tmp_path: Path
) -> None:
    """Its parent is the job's, which may do that between two attempts."""
    code = _make(sent, job)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    code.rename(code.with_name("moved"))
    code.symlink_to(tmp_path / "outside")
    assert not _make(sent, job).is_symlink()
    assert (code / "train.py").exists()
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["kept"]


def test_without_code_the_working_directory_is_empty(job: Path) -> None:
    assert list(_make(None, job).iterdir()) == []
    assert read_manifest(job) == Manifest()


def test_links_and_special_files_are_not_read(sent: Path, job: Path) -> None:
    """A build of the tenant's may have left them."""
    (sent / "passwd").symlink_to("/etc/passwd")
    (sent / "home").symlink_to("/root")
    os.mkfifo(sent / "pipe")
    code = _make(sent, job)
    assert (code / "passwd").is_symlink()
    assert (code / "home").is_symlink()
    assert not (code / "pipe").exists()


@pytest.mark.parametrize(
    ("room", "reason"),
    [
        (CopyLimits(size=1 << 20), "take more than the 1M that are left"),
        (CopyLimits(files=4), "more than 4 files and folders"),
    ],
)
def test_a_copy_that_is_too_large_leaves_nothing(
    sent: Path, job: Path, room: CopyLimits, reason: str
) -> None:
    with (sent / "sparse").open("wb") as file:
        file.truncate(1 << 40 if room.size else 0)
    with pytest.raises(CannotCopy, match=reason) as caught:
        _make(sent, job, room)
    assert caught.value.reason is Reason.DISK_QUOTA
    assert [path.name for path in job.rglob("*")] == ["work"]


def test_a_tree_that_is_too_deep_is_refused(sent: Path, job: Path) -> None:
    folder = sent
    for _ in range(MAX_DEPTH + 2):
        folder = folder / "d"
        folder.mkdir()
    with pytest.raises(CannotCopy, match="more than 64 nested folders") as caught:
        _make(sent, job)
    assert caught.value.reason is Reason.TRAINER_INVALID
