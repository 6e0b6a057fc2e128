"""A real PostgreSQL for tests: a cluster of its own on a socket in a temporary folder, gone when
they end.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cloud_ml.state.sql.store import SqlStateStore
from cloud_ml.state.sql.tables import metadata
from support.server import eventually

USER = "cloudml"
_SHARED = "shared"
_ON_THE_DISK = (
    "max_connections = 60\nlisten_addresses = ''\nshared_buffers = 16MB\nautovacuum = off\n"
)
_ROOT = os.geteuid() == 0


def binaries() -> Path | None:
    """The folder of ``initdb`` and ``postgres``, the newest there is."""
    if (config := shutil.which("pg_config")) is not None:
        result = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)
        candidates = [Path(result.stdout.strip())]
    else:
        candidates = []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


class Postgres:
    """A cluster in ``folder``. May be crashed and started again.

    Args:
        folder: An empty folder of the user whom the server runs as; its path is short, it holds the
            socket.
        programs: Where ``initdb`` and ``postgres`` are.
        options: Lines of its configuration.
    """

    def __init__(self, folder: Path, programs: Path, options: str = "") -> None:
        self.folder = folder
        self._programs = programs
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._names = count(1)
        made = subprocess.run(
            [
                programs / "initdb",
                "-D",
                self._data,
                "-U",
                USER,
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            **_as_nobody(),
        )
        assert made.returncode == 0, made.stderr
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(_ON_THE_DISK + options)

    def start(self) -> Postgres:
        """Start and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-k", self.folder],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/", **_as_nobody(),
            )  # fmt: skip
        eventually(self._answers, "PostgreSQL answers")
        return self

    def crash(self) -> None:
        """End without a word to anybody; the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """End in order, cutting off whoever is connected."""
        self._end(signal.SIGINT)

    def make(self, options: str = "") -> str:
        """Make an empty database; returns its URL."""
        name = f"state{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def emptied(self) -> str:
        """The URL of one database with our tables and no rows, the same at each call: quicker
        than a new one.
        """
        url = self.url(_SHARED)
        if not self.execute(f"SELECT 1 FROM pg_database WHERE datname = '{_SHARED}'"):
            self.execute(f"CREATE DATABASE {_SHARED}")
            SqlStateStore.open(url).close()
        wipes = [
            f"DELETE FROM {table.name}"
            for table in metadata.sorted_tables
            if table.name != "counters"
        ]
        self.execute("; ".join([*wipes, "UPDATE counters SET revision = 0, event = 0"]), _SHARED)
        return url

    def url(self, name: str) -> str:
        """The URL of a database."""
        return f"postgresql://{USER}@/{name}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run one statement as the administrator."""
        with psycopg.connect(
            host=str(self.folder), user=USER, dbname=database, autocommit=True
        ) as connection:
            answer = connection.execute(statement)
            return answer.fetchall() if answer.description else []

    @contextlib.contextmanager
    def rules(self, line: str) -> Iterator[None]:
        """Put ``line`` before all rules of who may connect how, for the length of a block."""
        file = self._data / "pg_hba.conf"
        before = file.read_text()
        try:
            file.write_text(f"{line}\n{before}")
            self._reload()
            yield
        finally:
            file.write_text(before)
            self._reload()

    def _reload(self) -> None:
        """Have the rules read again; they hold from the next connection on."""
        before = self.execute("SELECT pg_conf_load_time()")
        self.execute("SELECT pg_reload_conf()")
        eventually(
            lambda: self.execute("SELECT pg_conf_load_time()") != before, "the rules are read again"
        )

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(psycopg.OperationalError):
            self.execute("SELECT 1")
            return True
        return False

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(30)


@contextlib.contextmanager
def running(options: str = "fsync = off\n") -> Iterator[Postgres]:
    """A cluster that runs, for the length of a block; skips the test where PostgreSQL is not
    installed.
    """
    programs = binaries()
    if programs is None:
        pytest.skip("PostgreSQL's programs (initdb, postgres) are not installed")
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        pytest.skip("PostgreSQL wants a user with a name")
    folder = Path(
        tempfile.mkdtemp(prefix="cloudml-pg-", dir="/tmp")
    )  # a socket's path has at most 107 characters
    try:
        folder.chmod(0o755)
        if _ROOT:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        server = Postgres(folder, programs, options)
        try:
            yield server.start()
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_nobody() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if not _ROOT:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
