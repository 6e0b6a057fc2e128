"""Jobs as runs: found by their arguments, labels and metrics."""

from __future__ import annotations

import base64
import json
import math
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloud_ml.client import CloudMlClient
from cloud_ml.models.jobs.job import Job
from cloud_ml.models.tracking.metrics import LoggedValue
from support.server import RealServer

Run = Callable[..., tuple[Job, str]]

REPORTING = """
from cloud_ml import job
for step in range(3):
    job.report(step, loss=1 / (step + 1))
"""


def test_a_job_is_found_by_its_arguments_labels_and_metrics(
    run: Run, client: CloudMlClient, server: RealServer, tmp_path: Path
) -> None:
    arguments = ["--lr=0.25", "--opt", "adam", "--password=hunter2", "--deep"]
    job, _ = run("tracked-job", REPORTING, job_args=arguments, labels={"experiment": "tracked"})
    filter_ = "params.lr = '0.25' AND metrics.loss < 0.5 AND tags.experiment = 'tracked'"
    (found,) = client.runs.search("tracked", filter_)
    assert (found.uid, found.name, found.is_job) == (job.uid, "tracked-job", True)
    assert (found.state, found.metrics) == ("FINISHED", {"loss": 1 / 3})
    masked = found.params.pop("password")
    assert "hunter2" not in masked
    assert found.params == {"lr": "0.25", "opt": "adam", "deep": "true"}
    assert list(client.runs.search("tracked", "params.password = 'hunter2'")) == []
    assert client.runs.describe(job.uid).ended_at is not None
    assert [one.step for one in client.runs.points(job.uid, "loss")] == [0, 1, 2]

    listed = server.cli("runs", "list", "--experiment", "tracked", "--columns", "loss,lr").good()
    assert listed.out.splitlines()[0].split()[-2:] == ["LOSS", "LR"]
    assert listed.out.splitlines()[1].split()[-2:] == ["0.333333", "0.25"]
    options = ("-e", "tracked", "--columns", "loss,lr", "-o", "csv")
    table = server.cli("runs", "list", *options).good().out.splitlines()
    facts = "uid,name,experiment,state,created_at,ended_at"
    assert table[0] == f"{facts},metrics.loss,params.lr"
    by_itself = server.cli("runs", "list", "-n", "tracked*").good().out
    assert by_itself.splitlines()[0].split()[-1] == "LOSS"
    _check_exports(server, client, job.uid, tmp_path)
    described = json.loads(server.cli("runs", "describe", "tracked-job", "-o", "json").good().out)
    assert described[0]["experiment"] == "tracked"


def test_a_job_has_an_address_of_mlflow_and_no_run_of_it(run: Run) -> None:
    """With ``MLFLOW_RUN_ID``, a second run that code begins in a job would be the first one."""
    source = "import os\nprint(sorted(name for name in os.environ if name.startswith('MLFLOW_')))"
    job, log = run("mlflow-variables", source)
    assert job.succeeded, log
    names = "['MLFLOW_DISABLE_TELEMETRY', 'MLFLOW_TRACKING_TOKEN', 'MLFLOW_TRACKING_URI']"
    assert names in log.splitlines()


def test_a_run_is_logged_with_our_client(client: CloudMlClient) -> None:
    uid = client.runs.create("by-our-client", start=1000, tags={"team": "vision"})
    values = [
        LoggedValue("loss", value, step, 1000 + step) for step, value in enumerate([1, math.nan])
    ]
    for _ in range(2):  # what is sent again is there once
        client.runs.log(uid, metrics=values, params={"lr": "0.1"})
    client.runs.finish(uid, "FAILED", 2000)
    run = client.runs.describe(uid)
    assert (run.name, run.state, run.params) == ("by-our-client", "FAILED", {"lr": "0.1"})
    assert (run.tags["team"], math.isnan(float(run.metrics["loss"]))) == ("vision", True)
    assert run.ended_at is not None
    assert run.ended_at.timestamp() == 2
    assert [point.step for point in client.runs.points(uid, "loss")] == [0, 1]


def _check_exports(server: RealServer, client: CloudMlClient, uid: str, folder: Path) -> None:
    """All points, and all runs, as files."""
    points, runs = folder / "points.csv", folder / "runs.parquet"
    server.cli("runs", "metrics", "tracked-job", "-o", "csv", "--file", str(points)).good()
    lines = points.read_text().splitlines()
    assert lines[0] == "metric,task,source,step,at,value"
    assert [line.split(",")[3] for line in lines[1:]] == ["0", "1", "2"]
    message = server.cli("runs", "list", "-o", "parquet", "--file", str(runs)).good().err
    assert f"rows are in {runs}" in message
    assert (runs.read_bytes()[:4], runs.read_bytes()[-4:]) == (b"PAR1", b"PAR1")
    assert not list(folder.glob(".*"))
    refused = server.cli("runs", "list", "-o", "parquet")
    assert (refused.code, "-o parquet needs --file PATH" in refused.err) == (2, True)
    missing = server.cli("runs", "list", "-o", "csv", "--file", str(folder / "none" / "x.csv"))
    assert (missing.code, "cannot be written" in missing.err) == (1, True)
    assert [one.step for one in client.runs.all_points(uid, "loss")] == [0, 1, 2]


def test_a_run_without_a_job_is_shown_by_its_name(
    server: RealServer, client: CloudMlClient
) -> None:
    keys = server.credentials
    proof = base64.b64encode(f"{keys['access_key']}:{keys['secret_key']}".encode()).decode()

    def post(path: str, **fields: Any) -> Any:
        request = urllib.request.Request(
            f"{server.endpoint}/mlflow/api/2.0/mlflow/runs/{path}",
            json.dumps(fields).encode(),
            {"Content-Type": "application/json", "Authorization": f"Basic {proof}"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    made = post("create", experiment_id="0", run_name="from-a-laptop", start_time=1)
    uid = made["run"]["info"]["run_id"]
    post("log-metric", run_id=uid, key="loss", value=0.25, timestamp=1, step=7)
    assert uid in server.cli("runs", "describe", "from-a-laptop").good().out
    points = server.cli("runs", "metrics", "from-a-laptop", "--name", "loss").good().out
    assert points.splitlines()[1].split()[:2] == ["7", "0.25"]
    other = post("create", experiment_id="0", run_name="from-a-laptop", start_time=2)
    unclear = server.cli("runs", "describe", "from-a-laptop")
    assert (unclear.code, "several runs have the name 'from-a-laptop'" in unclear.err) == (1, True)
    assert other["run"]["info"]["run_id"] in unclear.err
    assert "several runs" in server.cli("runs", "delete", "from-a-laptop").err
    assert post("create", experiment_id="0", run_name="at-home", start_time=3)
    assert "several runs" in server.cli("runs", "compare", "from-a-laptop", "at-home").err
    assert server.cli("runs", "delete", other["run"]["info"]["run_id"]).good()
    assert f"({uid})" in server.cli("runs", "delete", "from-a-laptop").good().err
    for words in (("metrics",), ("describe",), ("delete",), ("wait",)):
        assert "there is no run Nowhere" in server.cli("runs", *words, "Nowhere").err
    experiments = server.cli("runs", "experiments").good().out.splitlines()
    assert ["Default", "0", "-"] in [line.split() for line in experiments]


def test_what_is_wrong_with_a_filter_is_said(server: RealServer) -> None:
    result = server.cli("runs", "list", "--filter", "metrics.loss ~ 1")
    assert result.code == 1
    assert "filter has '~' at character 14" in result.err
    assert "there is no experiment 'nope'" in server.cli("runs", "list", "-e", "nope").err
