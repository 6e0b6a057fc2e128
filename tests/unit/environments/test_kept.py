"""Folders that wait for the next job. What a changed one is, ``test_venvs.py`` tries with one
that has content.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.environments.packages import kept
from cloud_ml.environments.packages.kept import Kept


def _taken(folder: Path, name: str) -> tuple[Kept, Path, int]:
    """A job with its empty folder, and which one it is."""
    one, target = Kept(folder / "shelves"), folder / name
    one.take("tmp", target, Path.mkdir)
    return one, target, target.stat().st_ino


def test_an_empty_folder_is_used_again(tmp_path: Path) -> None:
    one, first, inode = _taken(tmp_path, "first")
    one.give_back(first)
    assert not first.exists()
    assert _taken(tmp_path, "second")[2] == inode


def test_what_this_process_gave_back_is_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, first, inode = _taken(tmp_path, "first")
    one.give_back(first)
    with monkeypatch.context() as patched:
        patched.setattr(kept, "_look", lambda folder: pytest.fail(f"{folder} is looked at"))
        other, second, found = _taken(tmp_path, "second")
    assert found == inode
    other.give_back(second)
    assert _taken(tmp_path, "third")[2] == inode


def test_a_change_on_the_shelf_is_found_at_the_end_of_the_next_job(tmp_path: Path) -> None:
    one, first, inode = _taken(tmp_path, "first")
    one.give_back(first)
    (shelved,) = (tmp_path / "shelves").glob("*/*")
    (shelved / "left").touch()
    other, second, found = _taken(tmp_path, "second")
    assert found == inode
    other.give_back(second)
    assert not second.exists()
    assert not list((tmp_path / "shelves").glob("*/*"))


def test_what_another_process_gave_back_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, first, inode = _taken(tmp_path, "first")
    one.give_back(first)
    monkeypatch.setattr(kept, "_given_back", {})
    other, second, found = _taken(tmp_path, "second")
    assert found == inode
    other.give_back(second)
    assert _taken(tmp_path, "third")[2] == inode


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_given_back", {})
    for number in range(kept._MOST_REMEMBERED + 5):
        kept._remember(str(number), {})
    assert len(kept._given_back) == kept._MOST_REMEMBERED
    assert str(kept._MOST_REMEMBERED + 4) in kept._given_back


def _leave_a_file(folder: Path) -> None:
    (folder / "left").touch()


def _put_another_in_its_place(folder: Path) -> None:
    folder.rename(folder.with_name("aside"))
    folder.mkdir()


def _open_up(folder: Path) -> None:
    folder.chmod(0o777)


@pytest.mark.parametrize("change", [_leave_a_file, _put_another_in_its_place, _open_up, Path.rmdir])
def test_one_that_a_job_has_changed_is_gone(tmp_path: Path, change: Callable[[Path], None]) -> None:
    one, first, _ = _taken(tmp_path, "first")
    change(first)
    one.give_back(first)
    assert not first.exists()
    assert not list((tmp_path / "shelves").glob("*/*"))


@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_turns_into_a_link_while_it_is_looked_at_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    outside, target = tmp_path / "outside", tmp_path / "venv"
    for place in (outside, target / "bin"):
        place.mkdir(parents=True)
        (place / "python").write_text("secret" if place == outside else "mine")
    changed = target / "bin" / "python" if what == "file" else target / "bin"

    swapped = False

    def swapping(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def look(path: str | int, *rest: Any, **options: Any) -> os.stat_result:
            nonlocal swapped
            found = real(path, *rest, **options)
            if str(path).endswith(changed.name) and not swapped:
                swapped = True
                changed.rename(tmp_path / "aside")
                changed.symlink_to(outside / "python" if what == "file" else outside)
            return found

        return look

    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, swapping(getattr(os, name)))
    seen: list[object] = []
    with pytest.raises(OSError):
        for _, facts in kept._look(target):
            seen.append(facts[-1])
    assert swapped
    assert b"secret" not in seen
