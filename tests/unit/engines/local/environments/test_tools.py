"""Folders that change hands between users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.engines.local.environments.tools import hand_over

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away"),
]
USER = (1_600_001, 1_600_001)


def _owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def test_what_a_server_without_users_left_goes_to_the_user(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "deep" / "er").mkdir(parents=True)
    (cache / "deep" / "er" / "file").touch()
    hand_over(str(cache), USER)
    assert _owners(cache) == {USER[0]}


def test_a_folder_that_is_the_users_at_the_top_only_is_not_taken_for_done(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "deep").mkdir(parents=True)
    os.chown(cache, *USER)
    hand_over(str(cache), USER)
    assert _owners(cache) == {USER[0]}


def test_links_are_given_away_themselves_not_what_they_point_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "folder").symlink_to(outside)
    (cache / "file").symlink_to(outside / "file")
    hand_over(str(cache), USER)
    assert _owners(cache) == {USER[0]}
    assert _owners(outside) == {0}
