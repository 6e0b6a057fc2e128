"""Runs and metrics: lists, filters, points that are logged through MLflow's API and read as a chart.

Run: ``python benchmarks/tracking.py``.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness import KEY, SECRET, Figure, Server, high, median, temporary_folder, timed

from cloud_ml.client import CloudMlClient
from cloud_ml.models.codec import format_time

RUNS, METRICS, REQUESTS = 100_000, 20, 100
POINTS, SHOWN, BATCH = 1_000_000, 2_000, 1_000
SINGLES = 500
_TOGETHER = 5_000
_API = "/mlflow/api/2.0/mlflow"


class Mlflow:
    """A connection that speaks MLflow's API, as its client does: user, password and JSON."""

    def __init__(self, endpoint: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(endpoint).netloc)
        proof = base64.b64encode(f"{KEY}:{SECRET}".encode()).decode()
        self._headers = {"Authorization": f"Basic {proof}", "Content-Type": "application/json"}

    def post(self, path: str, **fields: Any) -> Any:
        self._connection.request("POST", _API + path, json.dumps(fields), self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return json.loads(body)


def run() -> list[Figure]:
    with temporary_folder() as folder:
        server = Server(folder)
        try:
            server.start()
            group = Mlflow(server.endpoint).post("/experiments/create", name="many")
            server.stop()
            seed(server.data / "state.db", group["experiment_id"])
            server.start()
            return [
                *lists(server.client()),
                *logging(Mlflow(server.endpoint), server.client(), server.data / "state.db"),
            ]
        finally:
            server.stop()


def lists(client: CloudMlClient) -> list[Figure]:
    names = [f"metric{number}" for number in range(METRICS)]
    found = []
    for what, text in (
        (f"50 newest of {RUNS:,} runs, {METRICS} columns", ""),
        ("filter by a parameter that half of them have", "params.opt = 'adam'"),
        ("filter by a parameter that one of them has", "params.only = '5'"),
        ("filter by a parameter and a metric", "params.lr = '5' AND metrics.metric3 < 0.5"),
    ):

        def page(text: str = text) -> int:
            return len(list(client.runs.search("many", text, columns=names, limit=50)))

        assert page() == (1 if "only" in text else 50)
        times = [timed(page) for _ in range(REQUESTS)]
        found += [
            Figure(f"{what}, median", median(times), "ms", 10),
            Figure(f"{what}, p95", high(times, 0.95), "ms", 30),
        ]
    return found


def logging(mlflow: Mlflow, client: CloudMlClient, database: Path) -> list[Figure]:
    uid = mlflow.post("/runs/create", experiment_id="0")["run"]["info"]["run_id"]
    chance = random.Random(1)
    times = []
    for step in range(SINGLES):
        value = {"key": "single", "value": chance.random(), "timestamp": step, "step": step}
        times.append(
            timed(lambda value=value: mlflow.post("/runs/log-metric", run_id=uid, **value))
        )  # type: ignore[misc]
    before = _bytes(database)
    batches = [
        [
            {"key": "loss", "value": chance.random(), "timestamp": 10 * step, "step": step}
            for step in range(begin, begin + BATCH)
        ]
        for begin in range(0, POINTS, BATCH)
    ]
    began = time.perf_counter()
    for batch in batches:
        mlflow.post("/runs/log-batch", run_id=uid, metrics=batch)
    took = time.perf_counter() - began

    def chart() -> int:
        return len(client.runs.points(uid, "loss", most=SHOWN))

    assert 0 < chart() <= SHOWN
    shown = [timed(chart) for _ in range(REQUESTS)]
    return [
        Figure("log_metric through MLflow's API, median", median(times), "ms", 5),
        Figure(f"points a second in batches of {BATCH:,}", POINTS / took, "/s", 50_000, least=True),
        Figure(
            "bytes of a point on disk, double precision",
            (_bytes(database) - before) / POINTS,
            "B",
            10,
        ),
        Figure(f"{SHOWN:,} of {POINTS:,} points, median", median(shown), "ms", 20),
    ]


def _bytes(database: Path) -> int:
    """Of the points; what is to be written there still counts elsewhere."""
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT coalesce(sum(length(bytes) + length(envelope)), 0) FROM chunks"
        return int(connection.execute(query).fetchone()[0])


def seed(database: Path, experiment: str) -> None:
    """Runs of long ago, written faster than they could be logged. The server must be down."""
    with closing(sqlite3.connect(database)) as connection:
        newest = connection.execute("SELECT revision FROM counters").fetchone()[0]
        for begin in range(0, RUNS, _TOGETHER):
            numbers = range(newest + 1 + begin, newest + 1 + begin + _TOGETHER)
            for table, rows in _rows(numbers, newest, experiment):
                names, values = ", ".join(f'"{name}"' for name in rows[0]), rows[0].values()
                marks = ", ".join("?" * len(values))
                text = f"INSERT INTO {table} ({names}) VALUES ({marks})"
                connection.executemany(text, [tuple(row.values()) for row in rows])
            connection.commit()
        connection.execute("UPDATE counters SET revision = ?", (newest + RUNS,))
        connection.commit()


def _rows(
    numbers: range, before: int, experiment: str
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    chance = random.Random(numbers.start)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    org = "default"
    yield "records", [
        {
            "number": number, "uid": f"{number:032x}", "kind": "run", "org": org,
            "name": f"run-{number}", "owner": "ann", "index_value": "Logged", "generation": 1,
            "revision": number, "created_at": format_time(start + timedelta(seconds=number)),
            "updated_at": format_time(start), "title": "", "spec": "{}",
            "status": '{"phase":"Logged"}',
        }
        for number in numbers
    ]  # fmt: skip
    yield "runs", [
        {
            "number": number, "org": org, "experiment": experiment, "deleted": 0,
            "name": f"run{number}", "state": "FINISHED", "start": 10**12 + number,
            "end": 10**12 + number, "inputs": "[]",
        }
        for number in numbers
    ]  # fmt: skip
    params = [
        (number, key, value)
        for number in numbers
        for key, value in (
            ("opt", "adam" if number % 2 else "sgd"),
            ("lr", str(number % 100)),
            ("only", str(number - before)),
        )
    ]
    yield (
        "run_params",
        [
            {"run": number, "key": key, "org": org, "head": value, "value": value}
            for number, key, value in params
        ],
    )
    yield "series", [
        {
            "run": number, "task": "client", "name": f"metric{metric}", "attempt": 1, "restart": 0,
            "count": 10, "first": 0.5, "last": chance.random(), "min": 0.1, "max": 0.9,
            "last_step": 10, "last_at": 1, "nan": 0, "earlier": 0, "chunks": 1,
        }
        for number in numbers
        for metric in range(METRICS)
    ]  # fmt: skip


if __name__ == "__main__":
    for figure in run():
        print(figure)
