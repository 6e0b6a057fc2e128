"""What a task goes on from: the newest checkpoint that is said to be complete, and is there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from cloud_ml.engines.local.files import newest_checkpoint

NAMES = (".checkpoints", "job-1")


def newest(folder: Path, names: Sequence[str]) -> str:
    found = newest_checkpoint.newest(folder, names)
    return "" if found is None else found.path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.joinpath(*NAMES)
    folder.mkdir(parents=True)
    return folder


def note(folder: Path, path: str, time: float) -> None:
    with (folder / ".saved.jsonl").open("a") as file:
        file.write(f"\n{json.dumps({'path': path, 'step': 1, 'time': time})}\n")


def test_the_newest_that_is_still_there(tmp_path: Path, folder: Path) -> None:
    assert newest(tmp_path, NAMES) == ""
    for number in range(3):
        (folder / f"step-{number}").write_text("weights")
        note(folder, f"step-{number}", number)
    assert newest(tmp_path, NAMES) == "step-2"
    (folder / "step-2").unlink()
    assert newest(tmp_path, NAMES) == "step-1"


def test_what_was_not_said_to_be_complete_is_none(tmp_path: Path, folder: Path) -> None:
    (folder / "step-1").write_text("weights")
    assert newest(tmp_path, NAMES) == ""


def test_a_folder_counts_with_something_in_it(tmp_path: Path, folder: Path) -> None:
    (folder / "a" / "step-1").mkdir(parents=True)
    note(folder, "a/step-1", 1.0)
    assert newest(tmp_path, NAMES) == ""
    (folder / "a" / "step-1" / "weights").write_text("weights")
    assert newest(tmp_path, NAMES) == "a/step-1"


def test_tensorflow_notes_its_own(tmp_path: Path, folder: Path) -> None:
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
    assert newest(tmp_path, NAMES) == ""
    (folder / "model.ckpt-5.index").write_text("weights")
    assert newest(tmp_path, NAMES) == "model.ckpt-5"


def test_it_is_found_among_thousands_of_files(tmp_path: Path, folder: Path) -> None:
    """The first thousand names were looked at, in the order of the file system."""
    for number in range(1200):
        (folder / f"model.ckpt-{number}.index").touch()
    note(folder, "model.ckpt-0", 1.0)
    for number in (600, 1199):
        note(folder, f"model.ckpt-{number}", float(number))
        assert newest(tmp_path, NAMES) == f"model.ckpt-{number}"


def test_no_link_is_followed(tmp_path: Path, folder: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "step-1").write_text("a secret")
    (folder / "linked").symlink_to(outside)
    (folder / "link").symlink_to(outside / "step-1")
    for path in ("linked/step-1", "link", "linked", "../../outside/step-1"):
        note(folder, path, 1.0)
    assert newest(tmp_path, NAMES) == ""
    (folder / ".saved.jsonl").rename(outside / "note")
    (folder / ".saved.jsonl").symlink_to(outside / "note")
    (folder / "step-2").write_text("weights")
    note(outside, "step-2", 2.0)
    assert newest(tmp_path, NAMES) == ""


def test_a_note_that_is_no_file_is_none(tmp_path: Path, folder: Path) -> None:
    os.mkfifo(folder / ".saved.jsonl")
    (folder / "checkpoint").mkdir()
    assert newest(tmp_path, NAMES) == ""


def test_a_folder_that_the_job_has_replaced(tmp_path: Path, folder: Path) -> None:
    folder.rmdir()
    folder.write_text("no folder")
    assert newest(tmp_path, NAMES) == ""
