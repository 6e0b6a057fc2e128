"""Folders that are made where a job can write."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.engines.local.files.made_folders import make_below, remove_empty


def test_a_folder_is_made_once_and_goes_only_if_it_is_empty(tmp_path: Path) -> None:
    for _ in range(2):
        assert make_below(tmp_path, ["a", "b"], None)
    (tmp_path / "a" / "b" / "kept").touch()
    remove_empty(tmp_path, ["a", "b"])
    (tmp_path / "a" / "b" / "kept").unlink()
    for _ in range(2):
        remove_empty(tmp_path, ["a", "b"])
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]  # another job may use it now


@pytest.mark.parametrize("link", ["a", "a/b"])
def test_no_link_is_followed(tmp_path: Path, link: str) -> None:
    bucket, outside = tmp_path / "bucket", tmp_path / "outside"
    for folder in (bucket, outside, outside / "b"):
        folder.mkdir()
    (bucket / link).parent.mkdir(exist_ok=True)
    (bucket / link).symlink_to(outside)
    assert not make_below(bucket, ["a", "b", "c"], None)
    remove_empty(bucket, ["a", "b"])
    assert sorted(path.name for path in outside.rglob("*")) == ["b"]
    assert (bucket / link).is_symlink()


def test_a_file_in_the_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert not make_below(tmp_path, ["a", "b"], None)
    remove_empty(tmp_path, ["a"])
    assert (tmp_path / "a").read_text() == "x"
