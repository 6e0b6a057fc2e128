"""A backup takes the place of the database, which is kept; what is no backup changes nothing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloud_ml.errors import Conflict, Damaged, InvalidRequest, NotFound
from cloud_ml.state.epochs import NEXT_EPOCH, epoch_of
from cloud_ml.state.sql.backup import backup, restore
from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.testing.state.samples import SAMPLE, make

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def copy(store: SqlStateStore, url: str, tmp_path: Path) -> Path:
    """A backup of a database with the record ``old``, which has ``new`` since."""
    make(store, "old")
    backup(url, tmp_path / "copy.db")
    make(store, "new")
    store.close()
    return tmp_path / "copy.db"


def names(url: str) -> list[str]:
    store = SqlStateStore.open(url, create=False)
    found = [summary.key.name for summary in store.list(SAMPLE).items]
    store.close()
    return found


def test_the_replaced_database_is_kept_whole(copy: Path, url: str, path: Path) -> None:
    aside = restore(copy, url, now=NOW)
    assert aside == path.with_name("state.db.replaced-20260131T120000Z")
    assert names(url) == ["old"]
    assert names(f"sqlite:///{aside}") == ["new", "old"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert copy.exists()


def test_a_replaced_database_that_was_not_closed_keeps_its_log(
    copy: Path, url: str, path: Path
) -> None:
    left = SqlStateStore.open(url)
    make(left, "newest")
    log = path.with_name("state.db-wal")
    assert log.stat().st_size > 0
    content = {file: file.read_bytes() for file in (path, log)}
    left.close()
    for file, before in content.items():
        file.write_bytes(before)  # as a crash would have left them
    aside = restore(copy, url, now=NOW)
    assert names(url) == ["old"]
    assert names(f"sqlite:///{aside}") == ["newest", "new", "old"]


def test_a_folder_of_a_dead_server_serves_as_a_backup_with_its_log(
    url: str, path: Path, tmp_path: Path
) -> None:
    store = SqlStateStore.open(url)
    make(store, "in the log")
    found = tmp_path / "found"
    found.mkdir()
    for file in (path, path.with_name("state.db-wal")):
        (found / file.name).write_bytes(file.read_bytes())
    store.close()
    elsewhere = f"sqlite:///{tmp_path}/new/state.db"
    assert restore(found / "state.db", elsewhere, now=NOW) is None
    assert names(elsewhere) == ["in the log"]


def test_what_is_missing_or_damaged_or_newer_changes_nothing(
    copy: Path, url: str, path: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE schema_version SET version_num = '9999'")
    (tmp_path / "text").write_text("no database" * 1000)
    (tmp_path / "half").write_bytes(copy.read_bytes()[:30_000])
    with closing(sqlite3.connect(tmp_path / "strange.db")) as connection:
        connection.execute("CREATE TABLE another (x)")
    before = sorted(tmp_path.iterdir())
    refused = {
        "none": NotFound,
        "text": Damaged,
        "half": Damaged,
        "strange.db": Damaged,
        "copy.db": Conflict,
    }
    for name, error in refused.items():
        with pytest.raises(error, match=name):
            restore(tmp_path / name, url, now=NOW)
    assert sorted(tmp_path.iterdir()) == before
    assert names(url) == ["new", "old"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_restores_for_the_owner_of_the_folder(copy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "of somebody else"
    folder.mkdir()
    os.chown(folder, 1234, 2345)
    restore(copy, f"sqlite:///{folder}/state.db", now=NOW)
    found = (folder / "state.db").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (1234, 2345, 0o600)


def test_an_interrupted_restore_is_noticed_and_may_be_repeated(
    copy: Path, url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "hardlink_to", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            restore(copy, url, now=NOW)
    with pytest.raises(Damaged, match="missing"):
        SqlStateStore.open(url, create=False)
    assert restore(copy, url, now=NOW) is None
    assert names(url) == ["old"]


@pytest.mark.parametrize(
    "given",
    [
        "postgresql://ann:hunter2@db/state?sslmode=require",
        "postgresql://ann@db/state?sslmode=require&password=hunter2",
    ],
)
def test_for_postgresql_its_own_programs_are_named_without_the_password(given: str) -> None:
    with pytest.raises(InvalidRequest) as dump:
        backup(given, Path("/backups/a b"))
    with pytest.raises(InvalidRequest) as load:
        restore(Path("/backups/a b"), given, now=NOW)
    assert dump.value.hint == (
        "Run: pg_dump --format=custom '--file=/backups/a b' "
        "'--dbname=postgresql://ann@db/state?sslmode=require'"
    )
    assert load.value.hint == (
        "Run: pg_restore --single-transaction --no-owner "
        "'--dbname=postgresql://ann@db/state?sslmode=require' '/backups/a b' && psql "
        f"'--dbname=postgresql://ann@db/state?sslmode=require' '--command={NEXT_EPOCH}'"
    )
    assert "hunter2" not in str(dump.value.document()) + str(load.value.document())


def revision(url: str) -> int:
    store = SqlStateStore.open(url, create=False)
    found = store.revision()
    make(store, f"after-{found}")
    assert store.revision() > found
    store.close()
    return found


@pytest.mark.parametrize("replaced", ["whole", "damaged", "absent"])
def test_each_restore_begins_an_epoch_of_its_own(
    copy: Path, url: str, path: Path, replaced: str
) -> None:
    """Also of the same backup: revisions of before are never given out again, and can be told
    from those of now.
    """
    before = revision(url)
    assert epoch_of(before) == 0
    if replaced == "damaged":
        path.write_bytes(b"no database")
    elif replaced == "absent":
        path.unlink()
    restore(copy, url, now=NOW)
    first = revision(url)
    assert epoch_of(first) == 1
    assert first > before
    restore(copy, url, now=NOW)
    second = revision(url)
    assert epoch_of(second) == 2
    assert revision(url) > second


def test_a_damaged_backup_is_told_apart_from_the_database(copy: Path, url: str) -> None:
    copy.write_bytes(copy.read_bytes()[:50_000])
    with pytest.raises(Damaged, match=str(copy)) as refused:
        restore(copy, url, now=NOW)
    assert "The server's database is unchanged" in (refused.value.hint or "")
    assert names(url) == ["new", "old"]


def test_a_folder_is_no_backup(copy: Path, url: str) -> None:
    with pytest.raises(NotFound, match=f"{copy.parent} is a folder"):
        restore(copy.parent, url, now=NOW)


def test_a_missing_database_is_perhaps_another_one(url: str, path: Path) -> None:
    path.unlink(missing_ok=True)
    with pytest.raises(Damaged, match="it is missing") as refused:
        SqlStateStore.open(url, create=False)
    assert "--database-url" in (refused.value.hint or "")
