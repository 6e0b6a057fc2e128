"""MLflow's client, unmodified, against a real server: what its users write, and what they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.mlflow_client import MlflowClient, install
from support.server import RealServer, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("mlflow-client"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def mlflow(server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> MlflowClient:
    return MlflowClient(install(), server, tmp_path_factory.mktemp("user"))


def last_line(output: str) -> Any:
    return json.loads(output.splitlines()[-1])


LOGGING = """
import json, math, mlflow
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag
mlflow.set_experiment("digits")
with mlflow.start_run(run_name="first", tags={"team": "vision"}) as run:
    mlflow.log_param("lr", 0.1)
    mlflow.log_params({"opt": "adam", "layers": 3})
    for step in range(3):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_metrics({"acc": 0.5, "nan": math.nan, "inf": -math.inf}, step=1)
    with mlflow.start_run(run_name="child", nested=True):
        mlflow.log_metric("loss", 2.0)
    mlflow.log_text("hello", "texts/note one.txt")
    mlflow.log_dict({"a": 1}, "d.json")
    MlflowClient().log_inputs(run.info.run_id, [DatasetInput(
        Dataset("set", "digest", "http", "http://x/y.csv"), [InputTag("context", "train")])])
client, uid = MlflowClient(), run.info.run_id
found = client.get_run(uid)
print(json.dumps({
    "name": found.info.run_name, "status": found.info.status, "metrics": repr(found.data.metrics),
    "params": found.data.params, "team": found.data.tags["team"],
    "files": [one.path for one in client.list_artifacts(uid)],
    "below": [(one.path, one.file_size) for one in client.list_artifacts(uid, "texts")],
    "text": mlflow.artifacts.load_text(f"runs:/{uid}/texts/note one.txt"),
    "history": [(one.step, one.value) for one in client.get_metric_history(uid, "loss")],
    "inputs": [one.dataset.name for one in found.inputs.dataset_inputs],
    "parent": [one.info.run_name for one in client.search_runs(
        [found.info.experiment_id], f"tags.`mlflow.parentRunId` = '{uid}'")],
}))
"""


def test_what_is_logged_can_be_read(mlflow: MlflowClient) -> None:
    in_parts = {  # of two bytes each, several at a time
        "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "true",
        "MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE": "1",
        "MLFLOW_MULTIPART_UPLOAD_CHUNK_SIZE": "2",
    }
    result = last_line(mlflow(LOGGING, **in_parts))
    metrics = "{'acc': 0.5, 'inf': -inf, 'loss': 0.3333333333333333, 'nan': nan}"
    assert (result["name"], result["status"], result["metrics"]) == ("first", "FINISHED", metrics)
    assert result["params"] == {"lr": "0.1", "opt": "adam", "layers": "3"}
    assert result["team"] == "vision"
    assert result["files"] == ["d.json", "texts"]
    assert result["below"] == [["texts/note one.txt", 5]]
    assert result["text"] == "hello"
    assert result["history"] == [[0, 1.0], [1, 0.5], [2, 1 / 3]]
    assert result["inputs"] == ["set"]
    assert result["parent"] == ["child"]


SEARCHING = """
import json, mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag
mlflow.set_experiment("searched")
for number in range(7):
    with mlflow.start_run(run_name=f"run{number}") as run:
        mlflow.log_param("lr", number)
        mlflow.log_metric("loss", 1 / (number + 1))
        if number == 5:
            tags = [InputTag("mlflow.data.context", "train")]
            data = DatasetInput(Dataset("searched", "digest", "local", "{}"), tags)
            mlflow.MlflowClient().log_inputs(run.info.run_id, [data])
def names(text="", **more):
    return [one.info.run_name for one in
            mlflow.search_runs(filter_string=text, output_format="list", **more)]
print(json.dumps([
    names(), names("metrics.loss < 0.2"), names("params.lr = '3'"),
    names("params.lr IN ('1', '2') AND attributes.status = 'FINISHED'"),
    names("attributes.run_name LIKE '%6'"),
    names("dataset.name = 'searched' AND dataset.context LIKE 'tr%'"),
    names(order_by=["metrics.loss ASC"], max_results=2),
    [one.name for one in mlflow.search_experiments(filter_string="name ILIKE 'SEARCH%'")],
]))
client = mlflow.MlflowClient()
ids = [mlflow.get_experiment_by_name("searched").experiment_id]
pages, token = [], None
while True:
    page = client.search_runs(ids, max_results=3, page_token=token)
    pages.append([one.info.run_name for one in page])
    token = page.token
    if not token:
        break
print(json.dumps(pages))
"""


def test_runs_are_found_with_filters_orders_and_pages(mlflow: MlflowClient) -> None:
    found, pages = map(json.loads, mlflow(SEARCHING).splitlines()[-2:])
    every = [f"run{number}" for number in reversed(range(7))]
    assert found == [
        every,
        ["run6", "run5"],
        ["run3"],
        ["run2", "run1"],
        ["run6"],
        ["run5"],
        ["run6", "run5"],
        ["searched"],
    ]
    assert pages == [every[:3], every[3:6], every[6:]]


CHANGING = """
import json, mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag, ViewType
client = MlflowClient()
made = client.create_experiment("changing", tags={"a": "b"})
run = client.create_run(made, run_name="one").info.run_id
client.log_batch(run, [Metric("m", step, 1000 + step, step) for step in range(1000)],
                 [Param("p", "1")], [RunTag("t", "2")])
client.set_tag(run, "note", "x"); client.delete_tag(run, "note")
client.set_terminated(run, "FAILED"); client.update_run(run, name="renamed")
history = client.get_metric_history(run, "m")
client.delete_run(run)
gone = [len(client.search_runs([made])), len(client.search_runs([made], run_view_type=ViewType.ALL))]
client.restore_run(run)
client.set_experiment_tag(made, "team", "x")
client.rename_experiment(made, "changed")
client.delete_experiment(made)
deleted = client.get_experiment(made).lifecycle_stage
client.restore_experiment(made)
found, experiment = client.get_run(run), client.get_experiment(made)
refusals = []
for refused in (
    lambda: client.log_param(run, "p", "2"), lambda: client.get_run("0" * 32),
    lambda: client.create_experiment("changed"), lambda: client.search_runs([made], "metrics.m ~ 1"),
    lambda: client.log_metric(run, "../up", 1),
):
    try:
        refused(); refusals.append("")
    except mlflow.exceptions.MlflowException as error:
        refusals.append(error.error_code)
print(json.dumps([len(history), gone, deleted, found.info.run_name, found.info.status,
                  sorted(found.data.tags)[-1], experiment.name, experiment.tags, refusals]))
"""


def test_runs_and_experiments_are_changed(mlflow: MlflowClient) -> None:
    assert last_line(mlflow(CHANGING)) == [
        1000, [0, 1], "deleted", "renamed", "FAILED", "t", "changed", {"a": "b", "team": "x"},
        ["INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS",
         "INVALID_PARAMETER_VALUE", "INVALID_PARAMETER_VALUE"],
    ]  # fmt: skip


def test_a_token_needs_the_scope_of_runs(mlflow: MlflowClient, server: RealServer) -> None:
    script = "import mlflow; print(mlflow.set_experiment('by-token').name)"
    allowed = server.cli("token", "create", "--scope", "runs:write", "-o", "json").good().json()
    other = server.cli("token", "create", "--scope", "jobs:write", "-o", "json").good().json()
    assert mlflow(script, token=allowed["token"]).strip() == "by-token"
    refused = mlflow.run(script, token=other["token"])
    assert refused.returncode != 0
    assert "PERMISSION_DENIED" in refused.stderr
    wrong = mlflow.run(script, MLFLOW_TRACKING_PASSWORD="wrong")
    assert "The user or the password is wrong" in wrong.stderr
    elsewhere = mlflow.run(script, MLFLOW_TRACKING_URI=server.endpoint)
    assert "Add /mlflow to MLFLOW_TRACKING_URI" in elsewhere.stderr
    unknown = mlflow.run(script, token="cloudml_none")
    assert "not valid. Check that it was copied" in unknown.stderr


MODELS = """
import json, mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, LoggedModelParameter, LoggedModelStatus
client, made = MlflowClient(), mlflow.set_experiment("models").experiment_id
run = client.create_run(made).info.run_id
model = client.create_logged_model(made, name="net", source_run_id=run, params={"a": "1"})
client.set_logged_model_tags(model.model_id, {"team": "vision", "gone": "x"})
client.delete_logged_model_tag(model.model_id, "gone")
client.log_outputs(run, [LoggedModelOutput(model.model_id, step=3)])
ready = client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
names = [[one.name for one in client.search_logged_models([made], filter_string=text)]
         for text in ("name = 'net'", "params.a = '2'", "tags.team = 'vision'")]
outputs = [(one.model_id == model.model_id, one.step)
           for one in client.get_run(run).outputs.model_outputs]
client.delete_logged_model(model.model_id)
print(json.dumps([ready.status.value, ready.tags, ready.params, names, outputs,
                  len(client.search_logged_models([made]))]))
"""


def test_models_are_logged(mlflow: MlflowClient) -> None:
    assert last_line(mlflow(MODELS)) == [
        "READY", {"team": "vision"}, {"a": "1"}, [["net"], [], ["net"]], [[True, 3]], 0,
    ]  # fmt: skip


ENDING = """
import mlflow
run = mlflow.start_run(run_name="waited-for")
print(run.info.run_id, flush=True)
input()
mlflow.end_run("FAILED")
mlflow.delete_run(run.info.run_id)
"""


def test_who_waits_for_a_run_is_woken_by_its_end(server: RealServer, mlflow: MlflowClient) -> None:
    client = server.client()
    with mlflow.started(ENDING) as process, ThreadPoolExecutor(1) as pool:
        assert process.stdout is not None
        uid = process.stdout.readline().strip()
        changes = client.runs.watch(uid)
        assert not next(changes).gone
        waited = pool.submit(server.client().runs.wait, uid, 100)
        process.communicate("\n")
        assert waited.result().state == "FAILED"
        runs = (change.run for change in changes)
        last = next(run for run in runs if run is not None and run.deleted)
        assert last.state == "FAILED"
