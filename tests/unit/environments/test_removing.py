"""Folders as jobs leave them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cloud_ml.environments.removing import remove


def deep(folder: Path, levels: int) -> Path:
    """A folder of so many levels, with a file in each: deeper than any path can be."""
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    return folder


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_folder_of_any_depth(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = deep(tmp_path / "deep", 3000)
    request.addfinalizer(
        lambda: subprocess.run(["rm", "-rf", str(folder)], check=True)
    )  # pytest's own broom cannot
    before = descriptors()
    remove(folder)
    assert not folder.exists()
    assert descriptors() == before


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").touch()
    folder = tmp_path / "folder"
    (folder / "a" / "b").mkdir(parents=True)
    for where in (folder, folder / "a" / "b"):
        (where / "link").symlink_to(tmp_path / "outside")
        os.mkfifo(where / "pipe")
    remove(folder)
    assert not folder.exists()
    remove(tmp_path / "folder")  # absent is fine
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    remove(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "outside" / "kept").exists()


def test_what_a_link_leads_to_keeps_its_mode_when_it_takes_the_place_of_a_closed_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir(mode=0o755)
    (folder / "closed").mkdir(parents=True)
    open_file = os.open

    def open_closed(path: str, flags: int, **options: int) -> int:
        place = folder / "closed"
        if path == "closed" and place.is_dir() and not place.is_symlink():
            place.rmdir()
            place.symlink_to(outside)
            raise PermissionError
        return open_file(path, flags, **options)

    monkeypatch.setattr(os, "open", open_closed)
    remove(folder)
    assert outside.stat().st_mode & 0o777 == 0o755
    assert not folder.exists()


def test_wide_folders_and_closed_ones(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for number in range(300):
        (folder / f"d{number}" / "e").mkdir(parents=True)
        (folder / f"f{number}").touch()
    (folder / "d0" / "e").chmod(0)
    (folder / "d1").chmod(0)
    remove(folder)
    assert not folder.exists()
