"""``cloudml server backup`` and its sisters beside a real server, and on a real PostgreSQL."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloud_ml.cli.main import cli
from cloud_ml.errors import NotFound
from cloud_ml.models.train_job import TrainJob
from cloud_ml.state.sql.migrations import HEAD
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
    assert maintain(server.data, "restore", str(copy)).output == f"The database is that of {copy} now.\n"
    server.start()
    client = server.client()  # with the credentials that the server wrote anew, out of the backup
    with pytest.raises(NotFound):
        client.describe_train_job("new")
    client.start_train_job("old")
    assert client.get_train_job("old").wait(60).phase == "Succeeded"


@pytest.mark.xdist_group("postgresql")
def test_postgresql_is_migrated_checked_dumped_and_loaded(postgres: Postgres, tmp_path: Path) -> None:
    dump, first, second = tmp_path / "dump", postgres.make(), postgres.make()

    def told(url: str, *words: str) -> str:
        return maintain(tmp_path / "data", "--database-url", url, *words).output

    def run_what_is_told(url: str, *words: str) -> None:
        command = told(url, *words).partition("Run: ")[2].rpartition(" (code")[0]
        programs = f"{binaries()}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(shlex.split(command), check=True, env={**os.environ, "PATH": programs})

    assert "none of Cloud ML's tables" in told(first, "check")
    assert f"went from no schema to {HEAD}" in told(first, "migrate")
    run_what_is_told(first, "backup", str(dump))
    run_what_is_told(second, "restore", str(dump))
    assert f"has the schema {HEAD} already" in told(second, "migrate")
    assert "fsync of its server are off" in told(second, "check"), "these tests do not wait for the disk"
