"""A full or read-only disk: new work is refused, reads go on, and it passes without a restart."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_ml.errors import OutOfSpace, Unavailable
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.samples import SAMPLE, Made, SampleSpec, commit, make


def tell_writer(store: SqlStateStore, pragma: str) -> None:
    store._writer._let_go()
    connection = store._database.writer.raw_connection()
    connection.cursor().execute(f"PRAGMA {pragma}")
    connection.close()


def fill(store: SqlStateStore, spec: SampleSpec) -> list[Made]:
    made = []
    with pytest.raises(OutOfSpace):
        for number in range(10_000):
            made.append(make(store, f"fill{number}", spec=spec))  # noqa: PERF401 - what was made before the end counts
    return made


def check_that_reads_go_on(store: SqlStateStore, made: list[Made]) -> None:
    assert [store.get(SAMPLE, record.key.uid) for record in made] == made
    assert len(store.list(SAMPLE, limit=1000).items) == min(len(made), 1000)
    assert store.revision() == made[-1].revision


def test_full_by_a_limit_of_pages(store: SqlStateStore) -> None:
    tell_writer(store, "max_page_count = 60")
    made = fill(store, SampleSpec("x" * 3000))
    assert made
    check_that_reads_go_on(store, made)
    tell_writer(store, "max_page_count = 1000000")
    made.append(make(store, "after"))
    check_that_reads_go_on(store, made)


def test_read_only(store: SqlStateStore) -> None:
    made = make(store)
    tell_writer(store, "query_only = ON")
    with pytest.raises(OutOfSpace, match="full or read-only"):
        commit(store, made)
    check_that_reads_go_on(store, [made])
    tell_writer(store, "query_only = OFF")
    commit(store, made)


def test_a_writer_that_waits_too_long_for_another_process(store: SqlStateStore, url: str) -> None:
    other = SqlStateStore.open(url)
    made = make(store)
    tell_writer(store, "busy_timeout = 20")
    with other._database.writer.begin():
        with pytest.raises(Unavailable, match="locked"):
            commit(store, made)
        assert store.get(SAMPLE, made.key.uid) == made
    commit(store, made)
    other.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=2m", "none", folder], check=False
        ).returncode
    ):
        pytest.skip("this machine does not let us mount")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.root
def test_a_disk_that_is_really_full_and_then_read_only(small_disk: Path) -> None:
    store = SqlStateStore.open(f"sqlite:///{small_disk}/state.db")
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    made = fill(store, SampleSpec("x" * 20_000))
    check_that_reads_go_on(store, made)
    with pytest.raises(OutOfSpace):
        make(store, "small but still too much", spec=SampleSpec("x" * 20_000))
    ballast.unlink()
    made.append(make(store, "after", spec=SampleSpec("x" * 20_000)))
    check_that_reads_go_on(store, made)
    store.close()

    with pytest.raises(OutOfSpace):
        ballast.write_bytes(b"")
        _fill_up(ballast)
        SqlStateStore.open(f"sqlite:///{small_disk}/another.db")
    assert not (small_disk / "another.db").exists()


@pytest.mark.root
@pytest.mark.parametrize("free_kib", range(96, 400, 32))
def test_a_database_that_a_full_disk_cuts_short_is_not_there(
    small_disk: Path, free_kib: int
) -> None:
    """Its log could not be moved into the file: the start said that the new database is damaged,
    for ever.
    """
    ballast, url = small_disk / "ballast", f"sqlite:///{small_disk}/state.db"
    _fill_up(ballast)
    with ballast.open("r+b") as file:
        file.truncate(ballast.stat().st_size - free_kib * 1024)
    try:
        SqlStateStore.open(url).close()
    except OutOfSpace:
        assert not (small_disk / "state.db").exists()
        ballast.unlink()
        SqlStateStore.open(url).close()


def _fill_up(file: Path) -> None:
    with file.open("ab", buffering=0) as stream:
        try:
            while stream.write(b"x" * 4096):
                pass
        except OSError:
            return
