"""``cloudml server backup``, ``restore``, ``migrate`` and ``check``: what they print, and when
they refuse.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result

from cloud_ml import data_folder
from cloud_ml.engines.local.cleanup.teardown import EngineState, Teardown
from cloud_ml.state.sql.migrations import HEAD, VERSION_TABLE
from unit.cli.conftest import Run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(offline: Run, data: Path) -> Run:
    """Runs a command of ``cloudml server`` on the data folder."""

    def run(*words: str, **more: object) -> Result:
        return offline("server", *words, "--data-dir", str(data))

    assert run("migrate").exit_code == 0
    return run


RIGHTS = (
    "Users, keys and tokens that ended after the backup work again. Disable or revoke them again: "
    "cloudml admin users, cloudml admin keys, cloudml token."
)


def test_a_migration_says_from_where_to_where(offline: Run, data: Path) -> None:
    outputs = [offline("server", "--data-dir", str(data), "migrate").output for _ in range(2)]
    database = data / "state.db"
    assert outputs == [
        f"{database} went from no schema to {HEAD}.\n",
        f"{database} has the schema {HEAD} already.\n",
    ]


def test_a_migration_makes_nothing_in_the_place_of_a_lost_database(
    offline: Run, data: Path
) -> None:
    data.mkdir()
    data_folder.credentials(data).write_text("{}")
    result = offline("server", "migrate", "--data-dir", str(data))
    assert result.exit_code == 1
    assert "state.db is damaged (it is missing)" in result.stderr
    assert "cloudml server restore" in result.stderr
    assert not (data / "state.db").exists()


def test_a_backup_and_the_way_back(server: Run, data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    result = server("backup", str(copy))
    assert (
        result.output
        == f"{copy} holds the database of the data folder {data}, {copy.stat().st_size} bytes, "
        "all of them checked.\n"
    )
    assert server("backup", str(copy)).exit_code == 1

    result = server("restore", str(copy))
    (aside,) = data.glob("state.db.replaced-*Z")
    assert (
        result.output == f"The database of the data folder {data} is that of {copy} now.\n"
        f"The one before is kept as {aside}.\n"
        f"{RIGHTS}\n"
    )


def test_a_restore_into_a_new_folder_says_that_it_is_new(
    offline: Run, server: Run, tmp_path: Path
) -> None:
    copy, new = tmp_path / "copy.db", tmp_path / "new" / "deep"
    assert server("backup", str(copy)).exit_code == 0
    result = offline("server", "restore", str(copy), "--data-dir", str(new))
    assert result.output == (
        f"The database of the data folder {new} is that of {copy} now.\n"
        "The data folder is new and holds nothing else: copy the objects into it, too.\n"
        f"{RIGHTS}\n"
    )


def test_a_restore_names_jobs_that_the_backup_lacks(
    server: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, gang = tmp_path / "copy.db", SimpleNamespace(job_uid="ab12")
    monkeypatch.setattr(Teardown, "survey", lambda self: EngineState(gangs=[gang]))
    assert server("backup", str(copy)).exit_code == 0
    result = server("restore", str(copy))
    assert (
        "1 job or replica runs on this machine without a record in this database, unseen until "
        "the end: ab12. To end everything that runs: cloudml server stop --everything "
        f"--data-dir {data}\n"
    ) in result.stderr

    with closing(sqlite3.connect(copy)) as older, older:
        older.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0013'")
    assert "ab12" not in server("restore", str(copy)).stderr, "another version's cannot be read"


def test_a_refused_restore_speaks_of_no_database_that_is_not_there(
    offline: Run, server: Run, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(b"no database" * 1000)
    assert "The server's database is unchanged" in server("restore", str(copy)).stderr
    empty = offline("server", "restore", str(copy), "--data-dir", str(tmp_path / "new"))
    assert f"The database {copy} is damaged" in empty.stderr
    assert "unchanged" not in empty.stderr
    assert "Restore another backup." in empty.stderr


@pytest.mark.parametrize("size", [100, 50_000])
def test_a_backup_of_a_damaged_database_names_the_database(
    server: Run, data: Path, tmp_path: Path, size: int
) -> None:
    database = data / "state.db"
    content = database.read_bytes()
    damage = b"\xff" * 8192
    database.write_bytes(content[:size] + damage + content[size + len(damage) :])
    result = server("backup", str(tmp_path / "copy.db"))
    assert result.exit_code == 1
    assert f"The database {database} is damaged (" in result.stderr


@pytest.mark.parametrize("command", [["backup", "copy.db"], ["check"]], ids=lambda words: words[0])
@pytest.mark.parametrize("made", [False, True])
def test_a_folder_of_no_server_is_named(
    offline: Run, data: Path, command: list[str], made: bool
) -> None:
    if made:
        data.mkdir()
    result = offline("server", *command, env={"XDG_DATA_HOME": str(data)})
    assert result.exit_code == 1
    assert f"no server has used the data folder {data}/cloudml\n" in result.stderr
    assert "--data-dir" in result.stderr


def test_a_backup_that_cannot_be_written_is_told_of_its_folder(server: Run) -> None:
    result = server("backup", "/proc/copy.db")
    assert result.exit_code == 1
    assert "no file can be created in /proc (" in result.stderr


def test_options_before_and_after_the_command_mean_the_same(
    offline: Run, server: Run, data: Path
) -> None:
    after = server("check").output
    assert offline("server", "--data-dir", str(data), "check").output == after
    assert (
        offline("server", "--data-dir", "/nowhere", "check", "--data-dir", str(data)).output
        == after
    )


@pytest.mark.parametrize(
    "command", [["restore", "copy.db"], ["migrate"]], ids=lambda words: words[0]
)
def test_a_data_folder_in_use_is_left_alone(server: Run, data: Path, command: list[str]) -> None:
    lock = data_folder.hold(data)
    try:
        result = server(*command)
    finally:
        os.close(lock)
    assert result.exit_code == 1
    assert f"another server (process {os.getpid()}) uses the data folder {data}" in result.stderr
    assert "Stop it first" in result.stderr


def test_a_backup_and_a_check_do_not_mind_a_server(server: Run, data: Path, tmp_path: Path) -> None:
    lock = data_folder.hold(data)
    try:
        assert server("backup", str(tmp_path / "copy.db")).exit_code == 0
        assert server("check").exit_code == 0
    finally:
        os.close(lock)


def test_a_check_says_what_holds_and_names_the_damage(server: Run, data: Path) -> None:
    result = server("check")
    assert result.exit_code == 0
    assert all(line.startswith("ok  ") for line in result.stdout.splitlines())
    with closing(sqlite3.connect(data / "state.db")) as connection, connection:
        connection.execute("INSERT INTO events VALUES ('nobody', 0, '', '', '', '')")
    result = server("check")
    assert result.exit_code == 1
    assert "ok  The schema is" in result.stdout
    assert "events of nobody" in result.stderr


@pytest.mark.parametrize("command", [[], ["check"]], ids=["start", "check"])
@pytest.mark.parametrize(
    "url", ["postgresql://ann:hunter2@db/state", "postgresql://ann@db/state?password=hunter2"]
)
def test_a_password_among_the_arguments_is_refused(
    offline: Run, command: list[str], url: str
) -> None:
    result = offline("server", "--database-url", url, *command)
    assert result.exit_code == 1
    assert "CLOUDML_SERVER_DATABASE_URL" in result.stderr
    assert "hunter2" not in result.output
