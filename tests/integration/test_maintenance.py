"""``cloudml server backup`` and its sisters beside a real server, and on a real PostgreSQL."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloud_ml.cli.main import cli
from cloud_ml.errors import NotFound
from cloud_ml.models.jobs.job import JobChange
from cloud_ml.models.jobs.train_job import TrainJob
from cloud_ml.state.epochs import epoch_of
from cloud_ml.state.sql.migrations import HEAD
from cloud_ml.state.sql.store import SqlStateStore
from support.postgres import Postgres, binaries
from support.server import RealServer, trainer


def maintain(data: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["server", "--data-dir", str(data), *words])


def test_a_backup_of_a_running_server_brings_back_what_was_there(
    serve: Callable[..., RealServer], tmp_path: Path
) -> None:
    server, copy = serve(), tmp_path / "monday.db"
    client, source = server.client(), str(trainer(tmp_path / "source", "print('hello')"))
    client.submit_train_job(TrainJob("old", "trainer.task", source, save_mode=True))
    assert maintain(server.data, "backup", str(copy)).exit_code == 0
    client.submit_train_job(TrainJob("new", "trainer.task", source, save_mode=True))
    assert "2 train_job" in maintain(server.data, "check").output
    refused = maintain(server.data, "restore", str(copy))
    assert server.process is not None
    assert f"another server (process {server.process.pid})" in refused.output
    client.describe_train_job("new")

    server.terminate()
    for lost in server.data.glob("state.db*"):
        lost.unlink()
    server.data.joinpath("credentials.json").unlink()
    restored = maintain(server.data, "restore", str(copy)).output
    assert restored.startswith(
        f"The database of the data folder {server.data} is that of {copy} now.\n"
    )
    assert ("kept as" in restored, "tokens that ended after the backup" in restored) == (
        False,
        True,
    )
    server.start()
    client = server.client()  # with the credentials that the server wrote anew, out of the backup
    with pytest.raises(NotFound):
        client.describe_train_job("new")
    client.start_train_job("old")
    assert client.get_train_job("old").wait(60).phase == "Succeeded"


@pytest.mark.slow
def test_who_watches_while_the_database_is_restored_is_told_everything_anew(
    serve: Callable[..., RealServer], tmp_path: Path
) -> None:
    server, copy = serve(), tmp_path / "monday.db"
    client, source = server.client(), str(trainer(tmp_path / "source", "print('hello')"))
    client.submit_train_job(TrainJob("old", "trainer.task", source, save_mode=True))
    assert maintain(server.data, "backup", str(copy)).exit_code == 0
    watching, changes_seen = threading.Event(), queue.Queue[JobChange]()

    def watch() -> None:
        with closing(server.client().watch_train_jobs()) as changes:
            watching.set()
            for change in changes:
                changes_seen.put(change)
                if change.name == "newest":
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert watching.wait(60)
    while changes_seen.empty():  # the stream begins with the first that it tells
        client.submit_train_job(
            TrainJob(f"new-{time.monotonic_ns()}", "trainer.task", source, save_mode=True)
        )
        time.sleep(0.05)
    server.terminate()
    assert maintain(server.data, "restore", str(copy)).exit_code == 0
    server.start()
    while (change := changes_seen.get(timeout=30)).name != "old":
        assert epoch_of(change.revision) == 0
    assert epoch_of(change.revision) == 1
    assert change.job is not None
    server.client().submit_train_job(TrainJob("newest", "trainer.task", source, save_mode=True))
    assert changes_seen.get(timeout=30).name == "newest"
    watcher.join(60)
    assert not watcher.is_alive()


@pytest.mark.xdist_group("postgresql")
def test_postgresql_is_migrated_checked_dumped_and_loaded(
    postgres: Postgres, tmp_path: Path
) -> None:
    dump, first, second = tmp_path / "dump", postgres.make(), postgres.make()

    def run_command(url: str, *words: str) -> str:
        return maintain(tmp_path / "data", "--database-url", url, *words).output

    def run_suggested_command(url: str, *words: str) -> None:
        command = run_command(url, *words).partition("Run: ")[2].rpartition(" (code")[0]
        programs = f"{binaries()}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(["sh", "-c", command], check=True, env={**os.environ, "PATH": programs})

    assert "none of Cloud ML's tables" in run_command(first, "check")
    assert f"went from no schema to {HEAD}" in run_command(first, "migrate")
    run_suggested_command(first, "backup", str(dump))
    run_suggested_command(second, "restore", str(dump))
    assert f"has the schema {HEAD} already" in run_command(second, "migrate")
    assert "fsync of its server are off" in run_command(second, "check"), (
        "these tests do not wait for the disk"
    )
    epochs = []
    for url in (first, second):
        with closing(SqlStateStore.open(url, create=False)) as store:
            epochs.append(epoch_of(store.revision()))
    assert epochs == [0, 1], "who has watched the database of before is told to start again"
