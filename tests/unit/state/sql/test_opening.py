"""A database file: made whole, kept private, and never replaced when it is damaged."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from cloud_ml.errors import Conflict, Damaged, InvalidRequest, Unavailable
from cloud_ml.state.sql.dialects import sqlite
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.samples import SAMPLE, make, race


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed database of some two hundred pages; all that lies in its folder."""
    path = tmp_path_factory.mktemp("whole") / "state.db"
    store = SqlStateStore.open(f"sqlite:///{path}")
    for number in range(200):
        make(store, f"n{number}", title="x" * 2000)
    store.close()
    return path


@pytest.fixture
def filled(whole: Path, path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copy(whole, path))


def truncate_to(share: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(int(path.stat().st_size * share))

    return damage


def overwrite(start: float, length: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(int(path.stat().st_size * start))
            file.write(b"\xa5" * length)

    return damage


def lose_all_tables(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE somebody_elses (id INTEGER)")


DAMAGES = {
    "emptied": truncate_to(0),
    "a stump": truncate_to(0.001),
    "half": truncate_to(0.5),
    "all but the end": truncate_to(0.98),
    "no header": overwrite(0, 100),
    "garbage inside": overwrite(0.4, 20_000),
    "no tables of ours": lose_all_tables,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_database_is_refused_and_left_as_it_is(filled: Path, url: str, name: str) -> None:
    DAMAGES[name](filled)
    before = filled.read_bytes()
    with pytest.raises(Damaged) as refused:
        SqlStateStore.open(url)
    assert str(filled) in refused.value.message
    assert "cloudml server restore" in str(refused.value.hint)
    assert filled.read_bytes() == before


def test_damage_that_appears_later_is_told_when_it_is_met(filled: Path, url: str) -> None:
    store = SqlStateStore.open(url)
    overwrite(0.2, 600_000)(filled)
    with pytest.raises(Damaged, match=str(filled)):
        store.list(SAMPLE, limit=1000)
    store.close()


def test_a_document_that_cannot_be_read_is_damage(store: SqlStateStore, path: Path) -> None:
    made = make(store)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE records SET spec = '{\"text\": '")
    with pytest.raises(Damaged, match=made.key.uid):
        store.get(SAMPLE, made.key.uid)


def test_a_lost_file_whose_log_is_left_is_damage(
    store: SqlStateStore, url: str, path: Path
) -> None:
    make(store)
    path.unlink()
    with pytest.raises(Damaged, match="missing"):
        SqlStateStore.open(url)
    assert not path.exists()


def test_a_file_that_must_be_there_is_not_made(url: str, path: Path) -> None:
    with pytest.raises(Damaged, match="missing"):
        SqlStateStore.open(url, create=False)
    assert not path.exists()


def test_files_are_their_owners_alone(store: SqlStateStore, path: Path) -> None:
    make(store)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["state.db", "state.db-shm", "state.db-wal"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_file_that_others_may_read_is_closed_to_them(filled: Path, url: str) -> None:
    filled.chmod(0o644)
    SqlStateStore.open(url).close()
    assert filled.stat().st_mode & 0o777 == 0o600


def test_closing_leaves_one_whole_file(whole: Path) -> None:
    assert [file.name for file in whole.parent.iterdir()] == ["state.db"]


def test_folders_are_made(tmp_path: Path) -> None:
    SqlStateStore.open(f"sqlite:///{tmp_path}/a/b/state.db").close()
    assert (tmp_path / "a/b/state.db").exists()


def test_writes_are_synchronous_and_logged(store: SqlStateStore) -> None:
    with store._database.writer.connect() as connection:
        pragma = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    full = 2
    assert pragma == {
        "journal_mode": "wal",
        "synchronous": full,
        "foreign_keys": 1,
        "busy_timeout": 5000,
    }


def test_those_who_read_keep_few_pages_each(store: SqlStateStore) -> None:
    with store._database.reader.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA cache_size").scalar() == -512


def test_servers_that_start_together_share_one_database(url: str, path: Path) -> None:
    stores = race([partial(SqlStateStore.open, url)] * 4)
    for number, store in enumerate(stores):
        assert isinstance(store, SqlStateStore)
        make(store, f"n{number}")
    for store in stores:
        assert isinstance(store, SqlStateStore)
        assert len(store.list(SAMPLE).items) == len(stores)
        store.close()
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]


def test_a_newer_schema_is_refused(filled: Path, url: str) -> None:
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("UPDATE schema_version SET version_num = '9999'")
    with pytest.raises(Conflict) as refused:
        SqlStateStore.open(url)
    assert str(filled) in refused.value.message
    assert refused.value.value == "9999"


def test_the_pages_of_a_large_database_are_checked_as_they_are_read(
    filled: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CHECKED_BYTES", filled.stat().st_size - 1)
    overwrite(0.2, 600_000)(filled)
    store = SqlStateStore.open(url)
    with pytest.raises(Damaged, match=str(filled)):
        store.list(SAMPLE, limit=1000)
    store.close()


def test_a_large_database_that_is_cut_short_is_refused_at_once(
    filled: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CHECKED_BYTES", 0)
    truncate_to(0.98)(filled)
    with pytest.raises(Damaged, match=str(filled)):
        SqlStateStore.open(url)


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///:memory:", "sqlite:////x/y.db?mode=ro", "mysql://u:secret@h/d", "?"],
)
def test_an_url_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        SqlStateStore.open(url)
    assert refused.value.field == "server.database_url"
    assert "secret" not in str(refused.value.document())


def test_a_folder_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=str(tmp_path)):
        SqlStateStore.open(f"sqlite:///{tmp_path}")
