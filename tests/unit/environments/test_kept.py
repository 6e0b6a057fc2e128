"""Folders that wait for the next job. What a changed one is, ``test_venvs.py`` tries with one that has content."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_ml.environments.kept import Kept


def _taken(folder: Path, name: str) -> tuple[Kept, Path, int]:
    """A job with its empty folder, and which one it is."""
    kept, target = Kept(folder / "shelves"), folder / name
    kept.take("tmp", target, Path.mkdir)
    return kept, target, target.stat().st_ino


def test_an_empty_folder_is_used_again(tmp_path: Path) -> None:
    kept, first, inode = _taken(tmp_path, "first")
    kept.give_back(first)
    assert not first.exists()
    assert _taken(tmp_path, "second")[2] == inode


def _leave_a_file(folder: Path) -> None:
    (folder / "left").touch()


def _put_another_in_its_place(folder: Path) -> None:
    folder.rename(folder.with_name("aside"))
    folder.mkdir()


def _open_up(folder: Path) -> None:
    folder.chmod(0o777)


@pytest.mark.parametrize("change", [_leave_a_file, _put_another_in_its_place, _open_up, Path.rmdir])
def test_one_that_a_job_has_changed_is_gone(tmp_path: Path, change: Callable[[Path], None]) -> None:
    kept, first, _ = _taken(tmp_path, "first")
    change(first)
    kept.give_back(first)
    assert not first.exists()
    assert not list((tmp_path / "shelves").glob("*/*"))
