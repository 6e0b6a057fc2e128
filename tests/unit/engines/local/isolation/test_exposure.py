"""Where a supervisor shows what a tenant could not reach."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from cloud_ml.engines.local.isolation.exposure import place_to_mount


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder that any user can reach."""
    places = Path(tempfile.gettempdir()).resolve()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to(places) and folder != places:
            folder.chmod(folder.stat().st_mode | 0o001)
    return tmp_path


def test_nothing_is_hidden_by_what_is_mounted(top: Path) -> None:
    """A data folder below ``/mnt`` was out of sight for supervisors, and no job started."""
    disks, empty, private = top / "disks", top / "empty", top / "private"
    (disks / "data").mkdir(parents=True)
    empty.mkdir(mode=0o755)
    private.mkdir(mode=0o700)
    assert place_to_mount([disks, empty], top / "own") == empty
    assert place_to_mount([private, empty], top / "own") == empty
    assert place_to_mount([top / "absent", disks], top / "own") == top / "own"
    assert place_to_mount([disks], top / "own") == top / "own", "it is there already"
    assert (top / "own").stat().st_mode & 0o777 == 0o711
