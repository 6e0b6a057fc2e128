"""MLflow's own tracking server on SQLite, with runs that are written into its database: to log so many
through its interface would take hours.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import free_port

from peers.having import folder_of, version_of

_READY_S = 120.0
_API = "/api/2.0/mlflow"
_SHOWN_API = "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"
"""Where the charts of its console get their points."""
_FILLED = ("runs", "latest_metrics", "params", "metrics")


@dataclass(frozen=True)
class MlflowServer:
    """A server that runs.

    Attributes:
        version: Of MLflow.
        pid: Of its first process.
        database: Its SQLite file.
    """

    version: str
    pid: int
    database: Path
    connection: http.client.HTTPConnection

    def post(self, path: str, **fields: Any) -> Any:
        """The answer to a call such as ``/runs/search``."""
        headers = {"Content-Type": "application/json"}
        self.connection.request("POST", _API + path, json.dumps(fields), headers)
        return self._answer()

    def shown_points(self, uid: str, name: str, most: int) -> list[Any]:
        """The points of a series that a chart shows."""
        query = f"run_ids={uid}&metric_key={name}&max_results={most}"
        self.connection.request("GET", f"{_SHOWN_API}?{query}")
        return list(self._answer()["metrics"])

    def _answer(self) -> Any:
        answer = self.connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return json.loads(body)


@contextmanager
def running(folder: Path) -> Iterator[MlflowServer]:
    """A server on the database in a folder, with one worker, as ``mlflow server`` starts it with SQLite
    but for its four workers: requests come one after the other.

    Raises:
        Absent: MLflow cannot be installed here.
    """
    program = folder_of("mlflow") / "bin" / "mlflow"
    folder.mkdir(exist_ok=True)
    database, port = folder / "mlflow.db", free_port()
    command = [
        program, "server", "--backend-store-uri", f"sqlite:///{database}", "--artifacts-destination",
        folder / "artifacts", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
    ]  # fmt: skip
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        _await_answer(process, port)
        yield MlflowServer(version_of("mlflow"), process.pid, database, connection)
    finally:
        connection.close()
        # It leaves children of its own behind when only the first process is told.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def fill(
    database: Path, tables: Iterable[tuple[str, Sequence[str], Iterable[Sequence[Any]]]]
) -> None:
    """Write rows into tables, given as name, columns and rows; the indexes are made afterwards, which is
    faster. The server must be down.
    """
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        marks = ", ".join("?" * len(_FILLED))
        indexes = connection.execute(
            f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
            f" AND tbl_name IN ({marks})",
            _FILLED,
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        for table, columns, rows in tables:
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)
            connection.commit()
        for _, sql in indexes:
            connection.execute(sql)
        connection.commit()


def _await_answer(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("MLflow's server did not start")
