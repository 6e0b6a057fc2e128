"""A folder that is shown to a job is told from a later one of its path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cloud_ml.engines.local.isolation.bind_mounts import BindMount, BucketMounts, identity


@pytest.fixture
def mount(tmp_path: Path) -> BindMount:
    folder = tmp_path / "bucket"
    folder.mkdir()
    return BindMount(str(folder), "/storage/bucket", writable=True, identity=identity(str(folder)))


def present(mounts: Sequence[BindMount]) -> Sequence[BindMount]:
    lines: list[bytes] = []
    buckets = BucketMounts(mounts, lines.append)
    found = buckets.present()
    assert buckets.present() == found
    assert len(lines) == len(mounts) - len(found), "each is noted once"
    return found


def test_a_folder_stays_itself_whatever_is_written_to_it(mount: BindMount) -> None:
    Path(mount.source, "below").mkdir()
    Path(mount.source, "file").touch()
    Path(mount.source).chmod(0o700)
    assert present([mount]) == [mount]


def test_a_folder_that_is_gone_is_removed(mount: BindMount) -> None:
    Path(mount.source).rmdir()
    assert present([mount]) == []


def test_another_folder_of_that_path_is_not_the_one(mount: BindMount) -> None:
    """Also where the file system gives it the same number."""
    for _ in range(20):
        Path(mount.source).rmdir()
        Path(mount.source).mkdir()
        assert present([mount]) == []


def test_a_link_in_its_place_is_not_the_one(mount: BindMount) -> None:
    moved = Path(mount.source).rename(Path(mount.source).with_name("moved"))
    Path(mount.source).symlink_to(moved)
    assert present([mount]) == []
