"""A backup taken under load holds every acknowledged commit, and opens."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cloud_ml.errors import AlreadyExists, InvalidRequest, NotFound, Unavailable
from cloud_ml.state.sql.backup import backup
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.samples import SAMPLE, Made, make


def test_a_backup_under_load_restores_what_was_acknowledged(
    store: SqlStateStore, url: str, tmp_path: Path
) -> None:
    made: list[Made] = [make(store, f"before{number}") for number in range(50)]
    finished = threading.Event()

    def write() -> None:
        number = 0
        while not finished.is_set():
            made.append(make(store, f"n{number}"))
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        acknowledged = list(made)
        backup(url, tmp_path / "copy.db")
    finally:
        finished.set()
        writer.join()
    copy = SqlStateStore.open(f"sqlite:///{tmp_path}/copy.db", create=False)
    assert [copy.get(SAMPLE, record.key.uid) for record in acknowledged] == acknowledged
    make(copy, "after")
    copy.close()
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_a_backup_replaces_nothing_and_leaves_no_litter(
    store: SqlStateStore, url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "copy.db").write_text("precious")
    with pytest.raises(AlreadyExists, match=r"copy\.db"):
        backup(url, folder / "copy.db")
    assert (folder / "copy.db").read_text() == "precious"
    assert len(list(folder.iterdir())) == 1


def test_a_backup_of_nothing_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"state\.db"):
        backup(f"sqlite:///{tmp_path}/state.db", tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


def test_where_a_backup_cannot_go_is_told(store: SqlStateStore, url: str, tmp_path: Path) -> None:
    make(store, "old")
    with pytest.raises(InvalidRequest, match=f"{tmp_path} is a folder"):
        backup(url, tmp_path)
    with pytest.raises(NotFound, match=f"there is no folder {tmp_path / 'none'}"):
        backup(url, tmp_path / "none" / "copy.db")
