from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from cloud_ml.domain.jobs.outputs import JobFile
from cloud_ml.engines.local import job_files
from support.outputs import make


def everything(_: bytes) -> bool:
    return True


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working directory of a job to which nothing was sent."""
    return make(tmp_path / "job")


def found(work: Path) -> dict[bytes, JobFile]:
    with job_files.opened(work.parent.parent, os.geteuid()) as directory:
        assert directory is not None
        return {file.path: file for file in directory.files(everything)}


def content(work: Path, path: bytes, size: int = 1 << 20, owner: int | None = None) -> bytes:
    with job_files.opened(work.parent.parent, os.geteuid() if owner is None else owner) as directory:
        assert directory is not None
        return b"".join(directory.read(JobFile(path, size)))


def test_files_of_all_folders_with_their_sizes(work: Path) -> None:
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "b" / "model.pt").write_bytes(b"12345")
    (work / "log.txt").write_bytes(b"")
    assert {path: file.size for path, file in found(work).items()} == {b"a/b/model.pt": 5, b"log.txt": 0}
    assert content(work, b"a/b/model.pt") == b"12345"


def test_what_was_sent_and_did_not_change_is_left_out(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    (sent / "data").mkdir(parents=True)
    for name in ("kept.csv", "data/kept.csv", "longer.csv", "touched.csv", "replaced.csv"):
        (sent / name).write_bytes(b"1")
    with open(os.path.join(os.fsencode(sent), b"bad\xff"), "wb"):  # noqa: PTH118, PTH123
        pass
    work = make(tmp_path / "job", sent)
    (work / "longer.csv").write_bytes(b"12")
    os.utime(work / "touched.csv", ns=(0, 1))
    (work / "replaced.csv").unlink()
    (work / "replaced.csv").write_bytes(b"2")
    (work / "new.csv").write_bytes(b"1")
    assert sorted(found(work)) == [b"longer.csv", b"new.csv", b"replaced.csv", b"touched.csv"]


def test_after_a_power_cut_that_tore_the_manifest_all_files_are_there(work: Path) -> None:
    (work.parent.parent / "sent.json").write_text('{"format": 1, "fi')
    (work / "model.pt").touch()
    assert list(found(work)) == [b"model.pt"]


def test_there_is_no_directory(tmp_path: Path, work: Path) -> None:
    with job_files.opened(tmp_path / "absent", os.geteuid()) as directory:
        assert directory is None
    work.rmdir()
    work.symlink_to("/etc")  # the folder that it is in belongs to the job
    with job_files.opened(tmp_path / "job", os.geteuid()) as directory:
        assert directory is None


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta"])
def test_an_environment_is_passed_over(work: Path, mark: str) -> None:
    (work / "env" / mark).mkdir(parents=True)
    (work / "env" / "lib.py").touch()
    (work / "mine.py").touch()
    assert list(found(work)) == [b"mine.py"]


def test_links_are_not_followed_by_the_walk(tmp_path: Path, work: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (work / "to-file").symlink_to(outside / "secret")
    (work / "to-folder").symlink_to(outside)
    (work / "circle").symlink_to(work)
    assert found(work) == {}


def test_links_are_not_followed_when_a_file_is_read(tmp_path: Path, work: Path) -> None:
    """A job that lives on in some way swaps what was seen for a link, in the last name or before it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (work / "file").symlink_to(outside / "secret")
    (work / "folder").symlink_to(outside)
    assert content(work, b"file") == b""
    assert content(work, b"folder/secret") == b""


def test_pipes_and_sockets_are_no_files_and_hold_nobody_up(work: Path) -> None:
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(work / "socket"))
        assert found(work) == {}
        assert content(work, b"pipe") == b""
        assert content(work, b"socket") == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_told_and_not_read(work: Path) -> None:
    """Such as a hard link to somebody's file, where the system allows that."""
    (work / "theirs").write_text("secret")
    os.chown(work / "theirs", 4711, 4711)
    assert found(work)[b"theirs"].foreign
    assert content(work, b"theirs") == b""
    assert content(work, b"theirs", owner=4711) == b"secret"


def test_a_file_that_grows_gives_no_more_than_was_seen(work: Path) -> None:
    (work / "log").write_bytes(b"x" * 3_000_000)
    assert content(work, b"log", size=10) == b"x" * 10


def test_a_file_that_is_cut_or_goes_away_ends_early(work: Path) -> None:
    (work / "model").write_bytes(b"x" * 1_000_000)
    with job_files.opened(work.parent.parent, os.geteuid()) as directory:
        assert directory is not None
        chunks = directory.read(JobFile(b"model", 1_000_000))
        first = next(chunks)
        os.truncate(work / "model", 0)
        assert len(first) + sum(map(len, chunks)) < 1_000_000
    assert content(work, b"gone") == b""


def test_a_folder_that_is_closed_or_swapped_meanwhile_is_passed_over(work: Path) -> None:
    (work / "folder").mkdir()
    (work / "folder" / "file").touch()
    with job_files.opened(work.parent.parent, os.geteuid()) as directory:
        assert directory is not None

        def swaps(name: bytes) -> bool:
            (work / "folder").rename(work / "moved")
            (work / "folder").symlink_to("/etc")
            return True

        assert list(directory.files(swaps)) == []


def test_a_terabyte_of_nothing_is_measured_without_reading_it(work: Path) -> None:
    with (work / "sparse").open("wb") as file:
        file.truncate(2**40)
    assert found(work)[b"sparse"].size == 2**40


def test_names_that_are_no_text(work: Path) -> None:
    for name in (b"bad\xff", b"new\nline", b"back\\slash"):
        with open(os.path.join(os.fsencode(work), name), "wb"):  # noqa: PTH118, PTH123
            pass
    assert sorted(found(work)) == [b"back\\slash", b"bad\xff", b"new\nline"]


def test_folders_that_are_too_deep_are_named_and_not_walked(work: Path) -> None:
    here = os.open(work, os.O_RDONLY)
    for _ in range(100):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(os.open("f", os.O_CREAT, dir_fd=below))
        os.close(here)
        here = below
    os.close(here)
    paths = sorted(found(work), key=len)
    assert paths[:2] == [b"d/f", b"d/d/f"]
    assert paths[-1] == b"d/" * 65
    assert len(paths) == 65
