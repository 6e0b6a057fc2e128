"""Event files, which jobs may turn into anything."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cloud_ml.engines.local.files import event_files
from cloud_ml.engines.local.files.event_files import Root

NAME = "events.out.tfevents.1.host"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


def write(folder: Path, data: bytes = b"data", name: str = NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


def found(*roots: Root, since: float = 0.0) -> dict[str, int]:
    return {one.path: one.size for one in event_files.find(roots, since).files}


def content(path: str, *roots: Root) -> bytes | None:
    with event_files.opened_file(roots, path) as descriptor:
        return None if descriptor is None else os.pread(descriptor, 100, 0)


def test_files_are_found_and_opened(home: Path) -> None:
    write(home)
    write(home / "logs" / "train", b"more data")
    write(home / "logs", name="model.bin")
    root = Root("work", home)
    assert found(root) == {f"work/{NAME}": 4, f"work/logs/train/{NAME}": 9}
    assert content(f"work/logs/train/{NAME}", root) == b"more data"
    assert content(f"work/logs/{NAME}", root) is None


def test_roots_in_each_other_give_a_file_once(home: Path) -> None:
    write(home / "out" / "logs")
    outer, inner = (
        Root("fds://b/out", home, ["out"]),
        Root("fds://b/out/logs", home, ["out", "logs"]),
    )
    assert len(found(outer, inner)) == 1
    files = event_files.find([inner, outer], 0).files
    assert [(one.path, one.below) for one in files] == [(f"fds://b/out/logs/{NAME}", NAME)]
    assert content(files[0].path, outer, inner) == b"data"


def test_files_from_before_the_job_are_left_out(home: Path) -> None:
    old = write(home / "old")
    os.utime(old, (1000, 1000))
    write(home / "new")
    assert list(found(Root("work", home), since=time.time() - 500)) == [f"work/new/{NAME}"]


def test_no_link_is_followed(home: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", b"secret")
    (home / NAME).symlink_to(secret)
    (home / "linked").symlink_to(secret.parent)
    root = Root("work", home)
    assert found(root) == {}
    assert content(f"work/{NAME}", root) is None
    assert content(f"work/linked/{NAME}", root) is None
    assert content(f"work/../secret/{NAME}", root) is None
    assert found(Root("fds://b/linked", home, ["linked"])) == {}
    assert found(Root("fds://b/..", home, ["..", "secret"])) == {}


def test_a_file_that_becomes_something_else_is_not_opened(home: Path) -> None:
    path = write(home)
    root = Root("work", home)
    assert found(root)
    path.unlink()
    os.mkfifo(path)
    assert content(f"work/{NAME}", root) is None
    assert found(root) == {}
    path.unlink()
    path.mkdir()
    assert content(f"work/{NAME}", root) is None
    assert found(root) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_not_opened(home: Path) -> None:
    os.mknod(home / NAME, 0o20666, os.makedev(1, 5))
    assert found(Root("work", home)) == {}
    assert content(f"work/{NAME}", Root("work", home)) is None


def test_folders_may_be_as_deep_as_they_like(home: Path) -> None:
    descriptor = os.open(home, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    write(home / "z")
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert list(found(Root("work", home))) == [f"work/z/{NAME}"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_is_looked_at_is_bounded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "_MOST_NAMES", 50)
    for number in range(100):
        write(home / f"d{number:03}")
    files = event_files.find([Root("work", home)], 0)
    assert files.incomplete == "there are more than 50 files and folders"
    assert len(files.files) < 50
    write(home / "small")
    roots = [Root("fds://b/large", home), Root("work", home / "small")]
    assert f"work/{NAME}" in found(*roots)


def test_names_that_cannot_be_stored_and_packages_are_left_out(home: Path) -> None:
    write(home, name="events.out.tfevents.\udcff")
    write(home, name="events.out.tfevents.\n")
    write(home / ".hidden")
    write(home / "venv", name="pyvenv.cfg")
    write(home / "venv" / "lib")
    assert found(Root("work", home)) == {}
