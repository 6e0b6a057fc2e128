"""The server is killed while MLflow's client logs: what was acknowledged is there, and nothing twice."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.scenes import fragile, order, reached
from support import postgres
from support.mlflow_client import MlflowClient, install
from support.server import RealServer, eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("mlflow-client")]
BATCHES, POINTS, KILLS = 400, 10, 6

LOGGING = f"""
import sys, time
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
client = MlflowClient()
def until_answered(ask):
    while True:
        try:
            return ask()
        except MlflowException as error:
            time.sleep(0.05)
run = until_answered(lambda: client.create_run("0")).info.run_id
print(run, flush=True)
for batch in range({BATCHES}):
    steps = range(batch * {POINTS}, (batch + 1) * {POINTS})
    values = [Metric("loss", step / 2, 1700000000000 + step, step) for step in steps]
    params = [Param(f"p{{batch}}", "x")] if batch < 100 else []
    until_answered(lambda: client.log_batch(run, metrics=values, params=params))
    print(batch, flush=True)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealServer]:
    folder = tmp_path / "server"
    folder.mkdir()
    settings: dict[str, object] = {}
    with contextlib.ExitStack() as opened:
        if request.param == "postgresql":
            database = opened.enter_context(postgres.running())
            settings["CLOUDML_SERVER_DATABASE_URL"] = database.make()
        yield opened.enter_context(fragile(folder, **settings))


def test_points_are_there_once_whenever_the_server_dies(server: RealServer, tmp_path: Path) -> None:
    client = MlflowClient(install(), server, tmp_path)
    with client.started(LOGGING) as process:
        assert process.stdout is not None
        run, acknowledged = process.stdout.readline().strip(), -1
        for kill in range(KILLS):
            for _ in range(BATCHES // (KILLS + 2)):
                acknowledged = int(process.stdout.readline())
            point = ("state.commit.before", "state.commit.after")[kill % 2]
            order(server, point)
            eventually(lambda point=point: reached(server, point), f"a kill at {point}")
            server.kill()
            server.start()
        rest = process.communicate(timeout=300)[0].split()
    assert int(rest[-1]) == BATCHES - 1 > acknowledged
    output = client(READING, RUN=run)
    steps, values, params = json.loads(output.splitlines()[-1])
    assert steps == list(range(BATCHES * POINTS))
    assert values == [step / 2 for step in steps]
    assert params == 100


READING = """
import json, os
from mlflow import MlflowClient
client, run = MlflowClient(), os.environ["RUN"]
found = client.get_metric_history(run, "loss")
print(json.dumps([[one.step for one in found], [one.value for one in found],
                  len(client.get_run(run).data.params)]))
"""
