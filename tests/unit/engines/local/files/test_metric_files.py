"""Files of metrics, which jobs may turn into anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloud_ml.engines.abilities import MetricData
from cloud_ml.engines.local.files import metric_files
from cloud_ml.engines.local.files.metric_files import FOLDER, MetricFile, MetricWatch

FILE = MetricFile(1, "master-0")
MIB = 2**20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    metric_files.make(tmp_path, None)
    return tmp_path


@pytest.fixture
def path(home: Path) -> Path:
    return home / FOLDER / FILE.name


def read(home: Path, identity: str = "", offset: int = 0, end: int = MIB) -> MetricData | None:
    return metric_files.read(home, FILE, identity, offset, most=100, end=end)


def test_it_is_where_the_task_is_told(home: Path, path: Path) -> None:
    assert metric_files.variables(str(home), 1, "master-0") == {"CLOUDML_METRICS": str(path)}


def test_a_file_is_read_on(home: Path, path: Path) -> None:
    assert read(home) is None
    path.write_bytes(b"a" * 150)
    first = read(home)
    assert first is not None
    assert (first.offset, first.data, first.more) == (0, b"a" * 100, True)
    rest = read(home, first.identity, 100)
    assert rest is not None
    assert (rest.offset, rest.data, rest.more) == (100, b"a" * 50, False)


def test_another_file_and_one_that_was_cut_are_read_from_the_beginning(
    home: Path, path: Path
) -> None:
    path.write_bytes(b"a" * 50)
    first = read(home)
    assert first is not None
    path.write_bytes(b"new")
    cut = read(home, first.identity, 50)
    assert cut is not None
    assert (cut.offset, cut.data) == (0, b"new")
    other = path.with_name("other")
    other.write_bytes(b"b" * 80)
    other.rename(path)
    found = read(home, first.identity, 50)
    assert found is not None
    assert (found.offset, found.data) == (0, b"b" * 80)


def test_a_hole_of_terabytes_is_skipped(home: Path, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 * 2**40)
    found = read(home, end=2**60)
    assert found is not None
    assert (found.data, found.more) == (b"", False)
    with path.open("r+b") as file:
        file.seek(4 * 2**40)
        file.write(b"here")
    found = read(home, found.identity, 0, end=2**60)
    assert found is not None
    assert found.offset >= 4 * 2**40 - MIB
    assert found.data


def test_nothing_is_read_beyond_the_end(home: Path, path: Path) -> None:
    path.write_bytes(b"a" * 200)
    found = read(home, offset=0, end=60)
    assert found is not None
    assert (len(found.data), found.more) == (60, False)
    found = read(home, found.identity, 60, end=60)
    assert found is not None
    assert (found.data, found.more, found.size) == (b"", False, 200)


def test_no_link_is_followed(home: Path, path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    path.symlink_to(secret)
    assert read(home) is None
    path.unlink()
    path.parent.rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / FILE.name).write_bytes(b"secret")
    path.parent.symlink_to(elsewhere)
    assert read(home) is None
    MetricWatch().watch(home, "uid")
    metric_files.make(home, None)


def test_a_pipe_is_not_waited_for(home: Path, path: Path) -> None:
    os.mkfifo(path)
    assert read(home) is None


def test_a_folder_is_no_file(home: Path, path: Path) -> None:
    path.mkdir()
    assert read(home) is None


def test_a_watch_tells_once(home: Path, path: Path) -> None:
    watch = MetricWatch()
    watch.watch(home, "uid")
    assert watch.changed() == set()
    path.write_bytes(b"a")
    assert watch.changed() == {"uid"}
    path.write_bytes(b"more")
    assert watch.changed() == set()
    watch.watch(home, "uid")
    watch.forget("uid")
    path.write_bytes(b"again")
    assert watch.changed() == set()
    watch.close()
