"""Runs and metrics: lists, filters, points that are logged through MLflow's API and read as a chart,
beside MLflow's own server with the same runs. Aim has a series of a tenth of the points.

Run: ``python benchmarks/run.py tracking.runs`` (TRACKING_RUNS=10000: fewer runs).
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import sqlite3
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness import KEY, SECRET, Figure, Server, high, median, temporary_folder, timed
from peers import mlflow_server
from peers.having import Absent, folder_of, version_of
from peers.mlflow_server import MlflowServer

from cloud_ml.client import CloudMlClient
from cloud_ml.engines.local.processes import proctree
from cloud_ml.models.codec import format_time

RUNS = int(os.environ.get("TRACKING_RUNS", "100000"))
METRICS, REQUESTS = 20, 100
POINTS, SHOWN, BATCH = 1_000_000, 2_000, 1_000
SINGLE_POINTS = 200_000
"""Of single precision."""
SINGLES = 500
LISTS: tuple[tuple[str, str, Callable[[int], bool]], ...] = (
    (f"50 newest of {RUNS:,} runs, {METRICS} columns", "", lambda _: True),
    (
        "filter by a parameter that half of them have",
        "params.opt = 'adam'",
        lambda nth: _params(nth)["opt"] == "adam",
    ),
    ("filter by a parameter that one of them has", "params.only = '5'", lambda nth: nth == 5),
    (
        "filter by a parameter and a metric",
        "params.lr = '5' AND metrics.metric3 < 0.5",
        lambda nth: _params(nth)["lr"] == "5" and _last(nth, 3) < 0.5,
    ),
)
"""What is listed, its filter, and whether that holds for the nth run."""
_METRIC_NAMES = [f"metric{number}" for number in range(METRICS)]
_PEER_REQUESTS, _PEER_POINTS = 5, 50_000
"""A peer that takes seconds is asked less often."""
_LONG = "f" * 32
"""The peer's run with the long series."""
_TOGETHER = 5_000
_CHART = f"{SHOWN:,} of {POINTS:,} points, median"
_AIM_POINTS = POINTS // 10
"""Aim takes minutes to log a million."""
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
        peer = _peer(folder / "mlflow")
        server = Server(folder)
        try:
            server.start()
            group = Mlflow(server.endpoint).post("/experiments/create", name="many")
            server.stop()
            seed(server.data / "state.db", group["experiment_id"])
            server.start()
            figures = [*lists(server.client(), peer), *logging(server, peer)]
        finally:
            server.stop()
        return [*figures, *beside_aim(figures, folder / "aim")]


@dataclass
class Peer:
    """What MLflow's server answered, and how long it took.

    Attributes:
        name: With its version.
        lists: Filter → milliseconds of a list.
        single_core_ms: Milliseconds of processor time of a ``log-metric``.
        points: Points a second in batches.
        chart_ms: Milliseconds until the points of a chart are there.
    """

    name: str
    lists: dict[str, float]
    single_core_ms: float
    points: float
    chart_ms: float


def _peer(folder: Path) -> Peer | None:
    """MLflow's server on SQLite, with the same runs and the same series; ``None`` if it cannot be had."""
    try:
        with mlflow_server.running(folder) as server:
            database = server.database
    except Absent as error:
        print(f"  {error}")
        return None
    mlflow_server.fill(database, _peer_tables())
    with mlflow_server.running(folder) as server:
        took = {}
        for _, text, holds in LISTS:
            search = {
                "experiment_ids": ["0"], "filter": text, "max_results": 50,
                "order_by": ["attributes.start_time DESC"],
            }  # fmt: skip
            runs = server.post("/runs/search", **search)["runs"]
            assert len(runs[0]["data"]["metrics"]) == METRICS
            assert [run["info"]["run_name"] for run in runs] == _expected(holds)
            took[text] = median(
                [
                    timed(lambda search=search: server.post("/runs/search", **search))  # type: ignore[misc]
                    for _ in range(_PEER_REQUESTS)
                ]
            )
        run = server.post("/runs/create", experiment_id="0")["run"]["info"]["run_id"]
        singles, _ = log_singles(server, run, lambda: proctree.descendants(server.pid))
        chart = [
            timed(lambda: server.shown_points(_LONG, "loss", SHOWN)) for _ in range(_PEER_REQUESTS)
        ]
        assert 0 < len(server.shown_points(_LONG, "loss", SHOWN)) <= 2 * SHOWN
        rate = log_batches(server, run, _PEER_POINTS)
        name = f"MLflow {server.version}"
        return Peer(name, took, singles, rate, median(chart))


def _peer_tables() -> Iterator[tuple[str, Sequence[str], Iterator[tuple[Any, ...]]]]:
    """What ``seed`` writes, in MLflow's tables, and a run with a series of a million points."""
    uids = {nth: f"{nth:032x}" for nth in range(1, RUNS + 1)}
    yield (
        "runs",
        (
            "run_uuid",
            "user_id",
            "artifact_uri",
            "name",
            "status",
            "start_time",
            "end_time",
            "lifecycle_stage",
            "experiment_id",
        ),
        chain(
            (
                (
                    uid,
                    "ann",
                    f"mlflow-artifacts:/0/{uid}",
                    f"run{nth}",
                    "FINISHED",
                    10**12 + nth,
                    10**12 + nth,
                    "active",
                    0,
                )
                for nth, uid in uids.items()
            ),
            [(_LONG, "ann", "mlflow-artifacts:/0/long", "long", "FINISHED", 0, 0, "active", 0)],
        ),
    )
    yield (
        "params",
        ("key", "run_uuid", "value"),
        (
            (key, uid, _params(nth)[key])
            for key in ("lr", "only", "opt")
            for nth, uid in uids.items()
        ),
    )
    chance = random.Random(1)
    yield (
        "latest_metrics",
        ("key", "run_uuid", "value", "timestamp", "step", "is_nan"),
        (
            (name, uid, _last(nth, metric), 1, 10, 0)
            for metric, name in enumerate(_METRIC_NAMES)
            for nth, uid in uids.items()
        ),
    )
    yield (
        "metrics",
        ("key", "timestamp", "step", "run_uuid", "value", "is_nan"),
        (("loss", 10 * step, step, _LONG, chance.random(), 0) for step in range(POINTS)),
    )


def lists(client: CloudMlClient, peer: Peer | None) -> list[Figure]:
    found = []
    for what, text, holds in LISTS:

        def page(text: str = text) -> list[str]:
            runs = client.runs.search("many", text, columns=_METRIC_NAMES, limit=50)
            return [run.name for run in runs]

        assert page() == _expected(holds)
        times = [timed(lambda page=page: page()) for _ in range(REQUESTS)]  # type: ignore[misc]
        theirs = (peer.lists[text], peer.name) if peer else (None, "")
        found += [
            Figure(f"{what}, median", median(times), "ms", 10, *theirs),
            Figure(f"{what}, p95", high(times, 0.95), "ms", 30),
        ]
        if peer:
            ratio = peer.lists[text] / median(times)
            found.append(Figure(f"{what}, beside MLflow", ratio, "x", 200, least=True))
    return found


def _expected(holds: Callable[[int], bool]) -> list[str]:
    """The names of the 50 newest runs for which a condition holds."""
    return list(islice((f"run{nth}" for nth in range(RUNS, 0, -1) if holds(nth)), 50))


def log_singles(
    server: Mlflow | MlflowServer, uid: str, pids: Callable[[], Iterable[int]]
) -> tuple[float, float]:
    """Milliseconds of a ``log-metric``: of processor time of those processes, and by the clock."""
    chance, times, before = random.Random(1), [], _processor_s(pids())
    for step in range(SINGLES):
        value = {"key": "single", "value": chance.random(), "timestamp": step, "step": step}
        times.append(
            timed(lambda value=value: server.post("/runs/log-metric", run_id=uid, **value))  # type: ignore[misc]
        )
    return 1000 * (_processor_s(pids()) - before) / SINGLES, median(times)


def log_batches(
    server: Mlflow | MlflowServer,
    uid: str,
    points: int,
    metric: str = "loss",
    rounded: Callable[[float], float] = float,
) -> float:
    """Points a second, in batches."""
    chance = random.Random(1)
    batches = [
        [
            {"key": metric, "value": rounded(chance.random()), "timestamp": 10 * step, "step": step}
            for step in range(begin, begin + BATCH)
        ]
        for begin in range(0, points, BATCH)
    ]
    began = time.perf_counter()
    for batch in batches:
        server.post("/runs/log-batch", run_id=uid, metrics=batch)
    return points / (time.perf_counter() - began)


def _single_precision(value: float) -> float:
    """The value as a float32 has it."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def logging(server: Server, peer: Peer | None) -> list[Figure]:
    mlflow, client, database = Mlflow(server.endpoint), server.client(), server.data / "state.db"
    uid = mlflow.post("/runs/create", experiment_id="0")["run"]["info"]["run_id"]
    core_ms, single = log_singles(mlflow, uid, lambda: server.tree)
    before = _bytes(database)
    rate = log_batches(mlflow, uid, POINTS)

    def chart() -> int:
        return len(client.runs.points(uid, "loss", most=SHOWN))

    assert 0 < chart() <= SHOWN
    shown = [timed(chart) for _ in range(REQUESTS)]
    size = (_bytes(database) - before) / POINTS
    before = _bytes(database)
    log_batches(mlflow, uid, SINGLE_POINTS, "single_loss", _single_precision)
    single_size = (_bytes(database) - before) / SINGLE_POINTS
    name = peer.name if peer else ""
    return [
        Figure("log_metric through MLflow's API, median", single, "ms", 5),
        Figure(
            "log_metric requests per second of a core",
            1000 / core_ms,
            "/s",
            10_000 / peer.single_core_ms if peer else 0,
            1000 / peer.single_core_ms if peer else None,
            name,
            least=True,
        ),
        Figure(
            f"points a second in batches of {BATCH:,}",
            rate,
            "/s",
            50_000,
            peer.points if peer else None,
            name,
            least=True,
        ),
        Figure("bytes of a point on disk, double precision", size, "B", 10),
        Figure("bytes of a point on disk, single precision", single_size, "B", 6),
        Figure(
            _CHART,
            median(shown),
            "ms",
            20,
            peer.chart_ms if peer else None,
            name,
        ),
    ]


def beside_aim(figures: Iterable[Figure], folder: Path) -> list[Figure]:
    """Our chart of a long series again, and what Aim takes for one; nothing if it cannot be had."""
    try:
        python = folder_of("aim") / "bin" / "python"
    except Absent as error:
        print(f"  {error}")
        return []
    driver = Path(__file__).with_name("aim_driver.py")
    folder.mkdir()
    command = [python, driver, folder, str(_AIM_POINTS), str(SHOWN)]
    try:
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd="/").stdout
    except subprocess.CalledProcessError as error:
        print(f"  Aim gives no figure: {error}")
        return []
    shown_ms = median(json.loads(answer)["times"])
    name = f"Aim {version_of('aim')}, of {_AIM_POINTS:,}"
    return [replace(one, reference=shown_ms, beside=name) for one in figures if one.what == _CHART]


def _processor_s(pids: Iterable[int]) -> float:
    """The time of processors that these processes have had."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


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
            "name": f"run{number - before}", "state": "FINISHED",
            "start": 10**12 + number - before, "end": 10**12 + number - before, "inputs": "[]",
        }
        for number in numbers
    ]  # fmt: skip
    params = [
        (number, key, value)
        for number in numbers
        for key, value in _params(number - before).items()
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
            "run": number, "task": "client", "name": name, "attempt": 1, "restart": 0,
            "count": 10, "first": 0.5, "last": _last(number - before, metric), "min": 0, "max": 1,
            "last_step": 10, "last_at": 1, "nan": 0, "earlier": 0, "chunks": 1,
        }
        for number in numbers
        for metric, name in enumerate(_METRIC_NAMES)
    ]  # fmt: skip


def _params(nth: int) -> dict[str, str]:
    """The parameters of the nth run, from 1."""
    return {"opt": "adam" if nth % 2 else "sgd", "lr": str(nth % 100), "only": str(nth)}


def _last(nth: int, metric: int) -> float:
    """The newest value of a metric of the nth run, from 0 to 1, as good as random."""
    return (nth * 2_654_435_761 + metric * 40_503) % 2**32 / 2**32


if __name__ == "__main__":
    for figure in run():
        print(figure)
