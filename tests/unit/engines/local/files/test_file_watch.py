"""Who is told that event files and logs have changed, and how often."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.engines.local.files.event_files import Root, opened_folder, opened_root
from cloud_ml.engines.local.files.file_watch import FileWatch


@pytest.fixture
def watch() -> Iterator[FileWatch]:
    made = FileWatch()
    yield made
    made.close()


def test_a_file_that_grows_is_told_once(watch: FileWatch, tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(b"a")
    for _ in range(2):
        watch.watch("uid", [(opened_root(Root("work", tmp_path)), True)])
        assert watch.changed() == set()
        for _ in range(3):
            with file.open("ab") as opened:
                opened.write(b"more")
        assert watch.changed() == {"uid"}
        assert watch.changed() == set()


def test_where_only_names_count_growth_is_not_told(watch: FileWatch, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a")
    watch.watch("uid", [(opened_root(Root("work", tmp_path)), False)])
    with (tmp_path / "log").open("ab") as file:
        file.write(b"more")
    assert watch.changed() == set()
    (tmp_path / "runs").mkdir()
    assert watch.changed() == {"uid"}


def test_jobs_that_share_a_folder_are_all_told(watch: FileWatch, tmp_path: Path) -> None:
    root = Root("work", tmp_path)
    watch.watch("one", [(opened_root(root), True)])
    watch.watch("two", [(opened_root(root), False)])
    watch.watch("gone", [(opened_root(root), True)])
    watch.forget("gone")
    (tmp_path / "new").write_bytes(b"")
    assert watch.changed() == {"one", "two"}


def test_folders_that_are_watched_no_more_tell_nothing(watch: FileWatch, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    roots = [Root("work", tmp_path)]
    watch.watch("uid", [(opened_folder(roots, "work/first"), True)])
    watch.watch("uid", [(opened_folder(roots, "work/second"), True)])
    (first / "new").write_bytes(b"")
    assert watch.changed() == set()
    (second / "new").write_bytes(b"")
    assert watch.changed() == {"uid"}


def test_no_link_is_followed_and_what_is_gone_is_left_out(watch: FileWatch, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    (home / "runs").symlink_to(elsewhere)
    roots = [Root("work", home)]
    paths = ["work/runs", "work/gone", "work/../elsewhere", "else", "work//", "workshop"]
    watch.watch("uid", [(opened_folder(roots, path), True) for path in paths])
    (elsewhere / "new").write_bytes(b"")
    assert watch.changed() == set()


def test_folders_that_lie_deep_take_few_descriptors(watch: FileWatch, tmp_path: Path) -> None:
    """A user chooses how deep an output path is: the server has descriptors for other users, too."""
    below = ["a"] * 400
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for part in below:
        os.mkdir(part, dir_fd=descriptor)
        inner = os.open(part, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    names = [f"{number}" for number in range(16)]
    for name in names:
        os.mkdir(name, dir_fd=descriptor)
    roots = [Root("fds://b/deep", tmp_path, below)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    try:
        for name in names:
            paths = [f"fds://b/deep/{one}" for one in names]
            watch.watch("uid", [(opened_folder(roots, path), True) for path in paths])
            os.mkdir(f"{name}/new", dir_fd=descriptor)
            assert watch.changed() == {"uid"}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(descriptor)
