"""The tail of SQLite's log is cut off or changed anywhere: what was committed before it
survives, and nothing else.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud_ml.errors import Damaged
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.samples import SAMPLE, make

COMMITS = 30


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A folder as a killed server leaves it, and how long the log was after each commit."""
    live = tmp_path_factory.mktemp("live")
    left = tmp_path_factory.mktemp("left") / "data"
    store = SqlStateStore.open(f"sqlite:///{live}/state.db")
    lengths = []
    for number in range(COMMITS):
        make(store, f"n{number:03}")
        lengths.append((live / "state.db-wal").stat().st_size)
    shutil.copytree(live, left)
    store.close()
    assert lengths == sorted(set(lengths)), "each commit adds to the log"
    return left, lengths


def kept(folder: Path) -> list[str]:
    """The names of what is there, the oldest first."""
    store = SqlStateStore.open(f"sqlite:///{folder}/state.db", create=False)
    try:
        return sorted(record.key.name for record in store.list(SAMPLE, limit=1000).items)
    finally:
        store.close()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(share=st.floats(0, 1), flips=st.integers(0, 64))
def test_the_committed_prefix_survives(
    crashed: tuple[Path, list[int]], tmp_path: Path, share: float, flips: int
) -> None:
    left, lengths = crashed
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(left, folder)
    (folder / "state.db-shm").unlink(missing_ok=True)
    log = folder / "state.db-wal"
    at = int(share * lengths[-1])
    content = log.read_bytes()
    garbage = bytes(byte ^ 0xA5 for byte in content[at : at + flips])
    log.write_bytes(content[:at] + garbage if flips else content[:at])
    whole = sum(length <= at for length in lengths)
    assert kept(folder) == [f"n{number:03}" for number in range(whole)]
    assert make_one_more(folder) == whole + 1


def make_one_more(folder: Path) -> int:
    store = SqlStateStore.open(f"sqlite:///{folder}/state.db", create=False)
    try:
        make(store, "z-after")
        return len(store.list(SAMPLE, limit=1000).items)
    finally:
        store.close()


@pytest.mark.parametrize("damage", ["emptied", "missing", "zeros"])
def test_a_log_without_its_file_starts_nothing(
    crashed: tuple[Path, list[int]], tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(crashed[0], folder)
    database = folder / "state.db"
    size = database.stat().st_size
    database.unlink() if damage == "missing" else database.write_bytes(
        b"" if damage == "emptied" else bytes(size)
    )
    before = {
        file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")
    }
    with pytest.raises(Damaged) as refused:
        SqlStateStore.open(f"sqlite:///{database}", create=True)
    assert str(database) in refused.value.message
    assert "cloudml server restore" in str(refused.value.hint)
    assert {
        file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")
    } == before
