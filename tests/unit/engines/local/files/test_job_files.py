from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.domain.workloads.outputs import JobFile, Obstacle
from cloud_ml.engines.local.files import job_files, job_links
from support.outputs import make


def everything(_: bytes) -> bool:
    return True


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working directory of a job to which nothing was sent."""
    return make(tmp_path / "job")


def found(work: Path) -> dict[bytes, JobFile]:
    with job_files.open_working_directory(work.parent.parent, os.geteuid()) as directory:
        assert directory is not None
        return {file.path: file for file in directory.files(everything)}


def content(work: Path, path: bytes, size: int = 1 << 20, owner: int | None = None) -> bytes:
    with job_files.open_working_directory(
        work.parent.parent, os.geteuid() if owner is None else owner
    ) as directory:
        assert directory is not None
        return b"".join(directory.read(JobFile(path, size)))


def test_files_of_all_folders_with_their_sizes(work: Path) -> None:
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "b" / "model.pt").write_bytes(b"12345")
    (work / "log.txt").write_bytes(b"")
    assert {path: file.size for path, file in found(work).items()} == {
        b"a/b/model.pt": 5,
        b"log.txt": 0,
    }
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
    with job_files.open_working_directory(tmp_path / "absent", os.geteuid()) as directory:
        assert directory is None
    work.rmdir()
    work.symlink_to("/etc")  # the folder that it is in belongs to the job
    with job_files.open_working_directory(tmp_path / "job", os.geteuid()) as directory:
        assert directory is None


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta"])
def test_an_environment_is_passed_over(work: Path, mark: str) -> None:
    (work / "env" / mark).mkdir(parents=True)
    (work / "env" / "lib.py").touch()
    (work / "mine.py").touch()
    assert list(found(work)) == [b"mine.py"]


def test_a_link_to_a_file_of_the_directory_is_a_copy_of_it(work: Path) -> None:
    (work / "runs" / "7").mkdir(parents=True)
    (work / "runs" / "7" / "epoch-9.pt").write_bytes(b"weights")
    (work / "runs" / "newest").symlink_to("7")
    (work / "last.pt").symlink_to("runs/newest/epoch-9.pt")
    (work / "runs" / "7" / "best.pt").symlink_to("../../last.pt")
    (work / "absolute.pt").symlink_to(work / "last.pt")
    (work / "seen.pt").symlink_to("/work/code/last.pt")
    files = found(work)
    for name in (b"last.pt", b"runs/7/best.pt", b"absolute.pt", b"seen.pt"):
        assert (files[name].size, files[name].source, files[name].obstacle) == (
            7,
            b"runs/7/epoch-9.pt",
            None,
        )
        with job_files.open_working_directory(work.parent.parent, os.geteuid()) as directory:
            assert directory is not None
            assert b"".join(directory.read(files[name])) == b"weights"
    assert files[b"runs/newest"].obstacle is Obstacle.LINK_TO_FOLDER


def test_a_link_that_leads_out_is_named_and_never_read(tmp_path: Path, work: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (work / "to-file").symlink_to(outside / "secret")
    (work / "to-folder").symlink_to(outside)
    (work / "through-folder").symlink_to("to-folder/secret")
    (work / "upwards").symlink_to("../../../outside/secret")
    (work / "beside").symlink_to(f"{work}-other/x")
    (work.parent / "home.txt").write_text("the job's own, and no output")
    (work / "home").symlink_to("../home.txt")
    assert {file.obstacle for file in found(work).values()} == {Obstacle.LINK_OUTSIDE}
    assert len(found(work)) == 6


def test_links_that_lead_nowhere(work: Path) -> None:
    (work / "file").touch()
    os.mkfifo(work / "pipe")
    for name, text in {
        "absent": "nothing", "circle": "circle", "one": "two", "two": "one", "below": "file/x", "slash": "file/",
        "to-pipe": "pipe", "long": "./" * 500 + "file",
    }.items():  # fmt: skip
        (work / name).symlink_to(text)
    assert {file.obstacle for path, file in found(work).items() if path != b"file"} == {
        Obstacle.LINK_BROKEN
    }
    (work / "folders").mkdir()
    (work / "folders" / "up").symlink_to("..")
    assert found(work)[b"folders/up"].obstacle is Obstacle.LINK_TO_FOLDER


def test_so_many_links_are_followed_and_no_more(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_links, "MOST_LINKS", 3)
    (work / "file").touch()
    for number in range(5):
        (work / f"link-{number}").symlink_to("file")
    assert [file.obstacle for file in found(work).values()].count(Obstacle.LINK_BEYOND) == 2


def test_links_through_deep_folders_are_bounded_by_what_they_cost(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of a link opens every folder above it."""
    opened: list[object] = []
    monkeypatch.setattr(job_links, "MOST_LOOKS", 2000)
    monkeypatch.setattr(job_files, "_open_folder", counted(job_files._open_folder, opened))
    deep = work.joinpath(*["d"] * 30)
    (deep / "x").mkdir(parents=True)
    (deep / "file").touch()
    for number in range(200):
        (deep / f"link-{number}").symlink_to("x/../" * 60 + "file")
    obstacles = [file.obstacle for file in found(work).values()]
    assert obstacles.count(Obstacle.LINK_BEYOND) > 190
    assert len(opened) < 10_000


def counted(call: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    def counting(*arguments: Any) -> Any:
        calls.append(arguments)
        return call(*arguments)

    return counting


def test_a_link_that_was_sent_is_no_output_until_it_leads_elsewhere(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.mkdir()
    (sent / "data.csv").touch()
    for name in ("kept", "moved"):
        (sent / name).symlink_to("data.csv")
    work = make(tmp_path / "job", sent)
    (work / "moved").unlink()
    (work / "moved").symlink_to("./data.csv")
    assert list(found(work)) == [b"moved"]


def test_a_link_to_another_users_file_is_as_foreign_as_the_file(work: Path) -> None:
    (work / "theirs").write_text("secret")
    (work / "link").symlink_to("theirs")
    with job_files.open_working_directory(work.parent.parent, os.geteuid() + 1) as directory:
        assert directory is not None
        files = list(directory.files(everything))
        assert {file.obstacle for file in files} == {Obstacle.FOREIGN}
        assert [b"".join(directory.read(file)) for file in files] == [b"", b""]


def test_links_are_not_followed_when_a_file_is_read(tmp_path: Path, work: Path) -> None:
    """A job that lives on in some way swaps what was seen for a link, in the last name or before
    it.
    """
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
    assert found(work)[b"theirs"].obstacle is Obstacle.FOREIGN
    assert content(work, b"theirs") == b""
    assert content(work, b"theirs", owner=4711) == b"secret"


def test_a_file_that_grows_gives_no_more_than_was_seen(work: Path) -> None:
    (work / "log").write_bytes(b"x" * 3_000_000)
    assert content(work, b"log", size=10) == b"x" * 10


def test_a_file_that_is_cut_or_goes_away_ends_early(work: Path) -> None:
    (work / "model").write_bytes(b"x" * 1_000_000)
    with job_files.open_working_directory(work.parent.parent, os.geteuid()) as directory:
        assert directory is not None
        chunks = directory.read(JobFile(b"model", 1_000_000))
        first = next(chunks)
        os.truncate(work / "model", 0)
        assert len(first) + sum(map(len, chunks)) < 1_000_000
    assert content(work, b"gone") == b""


def test_a_folder_that_is_closed_or_swapped_meanwhile_is_passed_over(work: Path) -> None:
    (work / "folder").mkdir()
    (work / "folder" / "file").touch()
    with job_files.open_working_directory(work.parent.parent, os.geteuid()) as directory:
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
    assert paths[-1] == b"d/" * 64 + b"d"
    assert found(work)[paths[-1]].obstacle is Obstacle.FOLDER_TOO_DEEP
    assert len(paths) == 65


@pytest.fixture
def plain_user() -> Iterator[Callable[[], None]]:
    """Makes this process one that is not root; whoever runs the tests without being root needs
    no change.
    """
    before = os.geteuid()
    yield lambda: os.seteuid(4711) if before == 0 else None
    os.seteuid(before)


def test_folders_that_the_server_may_not_read_are_named(
    work: Path, plain_user: Callable[[], None]
) -> None:
    for name, mode in (("closed", 0o000), ("names-only", 0o444), ("open", 0o755)):
        (work / name).mkdir()
        (work / name / "model.pt").touch()
        (work / name).chmod(mode)
    with job_files.open_working_directory(work.parent.parent, os.geteuid()) as directory:
        assert directory is not None
        plain_user()
        files = {file.path: file.obstacle for file in directory.files(everything)}
    closed = Obstacle.FOLDER_CLOSED
    assert files == {b"closed": closed, b"names-only/model.pt": closed, b"open/model.pt": None}


def test_a_job_that_closes_its_working_directory_is_told_so(
    work: Path, plain_user: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "model.pt").touch()
    work.chmod(0o000)
    monkeypatch.chdir(work.parent.parent)
    for folder in (work.parent, *work.parents[1:3]):
        folder.chmod(0o755)
    plain_user()
    with job_files.open_working_directory(Path(), os.geteuid()) as directory:
        assert directory is not None
        assert [(file.path, file.obstacle) for file in directory.files(everything)] == [
            (b".", Obstacle.FOLDER_CLOSED)
        ]
