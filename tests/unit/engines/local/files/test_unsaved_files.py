"""What is told of files that a job wrote outside its working directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.domain.observed import UnsavedFiles
from cloud_ml.engines.local.files import unsaved_files
from cloud_ml.engines.local.files.unsaved_files import find_unsaved_files


def write(path: Path, content: bytes = b"weights") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    (folder := tmp_path / "tmp").mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (folder := tmp_path / "work").mkdir()
    return folder


def look(tmp: Path, home: Path) -> UnsavedFiles:
    return find_unsaved_files([(tmp, "/tmp"), (home, "~")], skipped=frozenset({b"code"}))


def test_files_are_named_as_the_job_names_them(tmp: Path, home: Path) -> None:
    write(tmp / "w.pt", b"long weights")
    write(home / "home.txt", b"text")
    write(home / "code" / "model.pt")
    assert look(tmp, home).sentence == (
        "2 files outside the working directory were not kept: /tmp/w.pt, ~/home.txt. "
        "Write them below the working directory."
    )


def test_the_largest_are_named_and_all_are_counted(tmp: Path, home: Path) -> None:
    for size in range(1, 8):
        write(home / "runs" / f"{size}.pt", b"x" * size)
    assert look(tmp, home) == UnsavedFiles(7, ("~/runs/7.pt", "~/runs/6.pt", "~/runs/5.pt"))


def test_one_file_is_told_in_the_singular(tmp: Path, home: Path) -> None:
    write(tmp / "w.pt")
    assert look(tmp, home).sentence == (
        "1 file outside the working directory was not kept: /tmp/w.pt. Write it below the "
        "working directory."
    )


@pytest.mark.parametrize(
    "path",
    [
        ".cache/torch/hub/resnet.pt", ".config/matplotlib/fonts.json", ".keras/datasets/mnist.npz", "__pycache__/a.pyc",
        "pip-unpack-a1b2/x.whl", "uv-1a2b/x", "torchinductor_job/fx/a.so", "matplotlib-abcd1234/fonts", "tmpab12cd_9",
        "tmpab12cd_9/model", "pymp-abc/x", "scikit_learn_data/iris.csv", "run.lock",
    ],
)  # fmt: skip
def test_caches_and_temporary_files_are_not_missed(tmp: Path, home: Path, path: str) -> None:
    write(tmp / path)
    write(home / path)
    assert look(tmp, home).sentence == ""


def test_empty_files_pipes_and_links_are_not_missed(tmp: Path, home: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret" / "of-another-job.txt")
    write(tmp / "empty", b"")
    os.mkfifo(tmp / "pipe")
    (tmp / "link").symlink_to(tmp_path / "secret" / "of-another-job.txt")
    (home / "folder").symlink_to(tmp_path / "secret")
    assert look(tmp, home) == UnsavedFiles()


def test_a_link_in_place_of_a_folder_is_not_followed(tmp: Path, home: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret" / "of-another-job.txt")
    tmp.rmdir()
    tmp.symlink_to(tmp_path / "secret")
    assert look(tmp, home) == UnsavedFiles()


def test_the_look_is_bounded_and_says_so(
    tmp: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsaved_files, "MAX_ENTRIES", 5)
    for number in range(9):
        write(tmp / f"{number}.pt")
    found = look(tmp, home)
    assert (found.count, found.complete) == (5, False)
    assert found.sentence.startswith(
        "at least 5 files outside the working directory were not kept: "
    )


def test_a_name_that_is_no_text_is_escaped(tmp: Path, home: Path) -> None:
    write(Path(os.fsdecode(os.fsencode(tmp) + b"/\x1b[31m\xff\n.pt")))
    assert look(tmp, home).names == (r"/tmp/\x1b[31m\xff\n.pt",)


def test_a_folder_that_has_gone_has_no_files(tmp: Path, home: Path) -> None:
    tmp.rmdir()
    write(home / "home.txt")
    assert look(tmp, home).names == ("~/home.txt",)


def test_the_folder_of_event_files_is_named(tmp: Path, home: Path) -> None:
    write(tmp / "x" / "events.out.tfevents.1.host")
    write(tmp / "y" / "events.out.tfevents.2.host")
    found = look(tmp, home)
    assert found.event_files in {"/tmp/x", "/tmp/y"}
    assert f"are in {found.event_files}, so their metrics are not read" in found.sentence
