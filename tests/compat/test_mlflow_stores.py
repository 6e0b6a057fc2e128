"""Stores of MLflow's client, unmodified: what it wrote is imported, and it reads what is exported."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_ml.cli.mlflow_stores.safe_files import alone
from cloud_ml.client import CloudMlClient
from support.client_environments import client_environment
from support.mlflow_client import PACKAGE, MlflowClient
from support.server import RealServer, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("mlflow-client"),
]
DATABASES = ("sqlalchemy==2.0.44", "alembic==1.17.1")
LOCAL = {"MLFLOW_ALLOW_FILE_STORE": "true"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def mlflow(server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> MlflowClient:
    python = client_environment("mlflow-client", PACKAGE, *DATABASES) / "python"
    return MlflowClient(python, server, tmp_path_factory.mktemp("user"))


@pytest.fixture
def client(server: RealServer) -> CloudMlClient:
    return server.client()


WRITE = """
import math, mlflow
mlflow.set_experiment("%(experiment)s")
with mlflow.start_run(run_name="first", tags={"team/x": "vision"}):
    mlflow.log_params({"lr": 0.1, "long": "x" * 500, "note": "- [a]: {b}"})
    for step in range(%(points)d):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_metrics({"nan": math.nan, "inf": -math.inf, "a/b": 2.5}, step=7)
    mlflow.log_text("hello", "texts/note one.txt")
    from mlflow.entities import Dataset, DatasetInput, InputTag
    digits = Dataset("digits", "0a1b", "local", '{"uri": "digits.csv"}', schema='{"x": "- [a]"}')
    for context in ("train", "test"):
        entry = DatasetInput(digits if context == "train" else Dataset("held out", "2c", "code", "{}"),
                             [InputTag("mlflow.data.context", context)])
        mlflow.MlflowClient().log_inputs(mlflow.active_run().info.run_id, [entry])
    with mlflow.start_run(run_name="child", nested=True):
        mlflow.log_metric("loss", 2.0)
with mlflow.start_run(run_name="bad"):
    mlflow.log_metric("loss", 1.0)
    mlflow.end_run("FAILED")
"""
READ = """
import json, mlflow
LARGEST = "1.7976931348623157e+308"  # what MLflow's database keeps of infinity
client = mlflow.MlflowClient()
experiment = client.get_experiment_by_name("%s")
found = {}
for run in client.search_runs([experiment.experiment_id]):
    parent = run.data.tags.get("mlflow.parentRunId")
    found[run.info.run_name] = {
        "status": run.info.status, "params": run.data.params, "times": [run.info.start_time, run.info.end_time],
        "metrics": {name: [(repr(one.value).replace(LARGEST, 'inf'), one.step, one.timestamp)
                           for one in client.get_metric_history(run.info.run_id, name)]
                    for name in sorted(run.data.metrics)},
        "datasets": sorted([sorted((key, str(text)) for key, text in dict(one.dataset).items()),
                            {tag.key: tag.value for tag in one.tags}]
                           for one in client.get_run(run.info.run_id).inputs.dataset_inputs),
        "team": run.data.tags.get("team/x"),
        "parent": parent and client.get_run(parent).info.run_name,
        "files": [one.path for one in client.list_artifacts(run.info.run_id, "texts")],
        "text": mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/texts/note one.txt")
                if run.info.run_name == "first" else "",
    }
print(json.dumps(found, sort_keys=True))
"""


def _read(mlflow: MlflowClient, experiment: str, **variables: str) -> Any:
    return json.loads(mlflow(READ % experiment, **variables).splitlines()[-1])


@pytest.mark.parametrize("kind", ["folder", "database"])
def test_what_the_client_wrote_is_imported_once(
    server: RealServer, mlflow: MlflowClient, tmp_path: Path, kind: str
) -> None:
    experiment = f"imported-{kind}"
    path = tmp_path / ("mlruns" if kind == "folder" else "mlflow.db")
    uri = f"file://{path}" if kind == "folder" else f"sqlite:///{path}"
    local = {**LOCAL, "MLFLOW_TRACKING_URI": uri}
    folder = tmp_path / "mlruns"
    folder.mkdir()
    script = f"import os; os.chdir({str(tmp_path)!r})\n" + WRITE
    mlflow(script % {"experiment": experiment, "points": 5}, **local)
    output = server.cli("runs", "import", str(path)).good().err
    assert "3 runs were imported, 0 continued, 0 were here already; 1 files" in output
    found = _read(mlflow, experiment)
    assert found == _read(mlflow, experiment, **local)
    assert len(found["first"]["datasets"]) == 2
    again = server.cli("runs", "import", str(path)).good().err
    assert "0 runs were imported, 0 continued, 3 were here already; 0 files" in again


def test_an_import_that_was_killed_goes_on(
    server: RealServer, mlflow: MlflowClient, client: CloudMlClient, tmp_path: Path
) -> None:
    path = tmp_path / "mlruns"
    local = {**LOCAL, "MLFLOW_TRACKING_URI": f"file://{path}"}
    mlflow(WRITE % {"experiment": "killed", "points": 3}, **local)
    (run,) = (each.parent.parent for each in path.glob("*/*/tags/team"))
    metric = run / "metrics" / "loss"
    metric.write_text("".join(f"{at} {at}.5 {at}\n" for at in range(30_000)))
    with server.spawn("runs", "import", str(path)) as started:
        while not any(
            one.count >= 2000
            for each in client.runs.search(None, f"tags.`cloudml.import.source` = '{run.name}'")
            for one in client.runs.series(each.uid)
        ):
            assert started.poll() is None
        started.kill()
        started.communicate()
    output = server.cli("runs", "import", str(path)).good().err
    assert "1 continued" in output
    (found,) = client.runs.search("killed", "attributes.run_name = 'first'")
    points = [one.step for one in client.runs.all_points(found.uid, "loss")]
    assert points == list(range(30_000))
    assert "0 runs were imported, 0 continued" in server.cli("runs", "import", str(path)).err


def test_a_folder_that_is_no_store_is_told(server: RealServer, tmp_path: Path) -> None:
    refused = server.cli("runs", "import", str(tmp_path))
    assert refused.code == 1
    assert "the store has no experiment" in refused.err
    assert "allowed: a folder mlruns or a database mlflow.db" in refused.err


def test_links_and_devices_of_a_foreign_folder_are_not_followed(
    server: RealServer, mlflow: MlflowClient, client: CloudMlClient, tmp_path: Path
) -> None:
    path = tmp_path / "mlruns"
    local = {**LOCAL, "MLFLOW_TRACKING_URI": f"file://{path}"}
    mlflow(WRITE % {"experiment": "hostile", "points": 1}, **local)
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    (run,) = (each.parent.parent for each in path.glob("*/*/tags/team"))
    (run / "artifacts" / "texts" / "link.txt").symlink_to(secret)
    (run / "artifacts" / "folder").symlink_to(tmp_path)
    (run / "params" / "stolen").symlink_to(secret)
    os.mkfifo(run / "params" / "pipe")
    bad = next(
        each.parent for each in path.glob("*/*/meta.yaml") if "run_name: bad" in each.read_text()
    )
    (bad / "meta.yaml").write_text("!!python/object/apply:os.system ['touch /tmp/x']")
    refused = server.cli("runs", "import", str(path))
    assert (refused.code, "meta.yaml cannot be read" in refused.err) == (1, True)
    (bad / "meta.yaml").unlink()
    output = server.cli("runs", "import", str(path)).good().err
    assert "2 links in" in output
    (found,) = client.runs.search("hostile", "attributes.run_name = 'first'")
    assert set(found.params) == {"lr", "long", "note"}
    keys = [
        one.key
        for one in client.storage.list_objects(
            f"fds://{client.whoami().default_bucket}/mlflow/{found.uid}/"
        )
    ]
    assert keys == [f"mlflow/{found.uid}/artifacts/texts/note one.txt"]


def test_the_client_reads_what_is_exported(
    server: RealServer, mlflow: MlflowClient, tmp_path: Path
) -> None:
    mlflow(WRITE % {"experiment": "exported", "points": 1500})
    folder = tmp_path / "mlruns"
    for _ in range(2):
        output = server.cli("runs", "export", "-e", "exported", "-o", str(folder)).good().err
        assert f"3 runs are in {folder}" in output
    local = {**LOCAL, "MLFLOW_TRACKING_URI": f"file://{folder}"}
    assert _read(mlflow, "exported", **local) == _read(mlflow, "exported")
    assert not list(folder.glob("**/.draft-*"))
    again = server.cli("runs", "import", str(folder)).good().err
    assert "0 runs were imported, 0 continued, 3 were here already" in again


MODELS = """
import mlflow, mlflow.pyfunc
mlflow.set_experiment("%s")
class Times(mlflow.pyfunc.PythonModel):
    def __init__(self, factor):
        self.factor = factor
    def predict(self, context, model_input):
        return [self.factor * each for each in model_input]
client = mlflow.MlflowClient()
for factor in (2, 3, 4):
    with mlflow.start_run(run_name=f"times {factor}"):
        mlflow.pyfunc.log_model(name="model", python_model=Times(factor), registered_model_name="%s",
                                pip_requirements=[], params={"factor": str(factor)})
client.delete_model_version("%s", "2")
client.set_registered_model_alias("%s", "champion", 3)
client.set_registered_model_tag("%s", "team", "vision")
client.set_model_version_tag("%s", "3", "ok", "yes")
client.update_model_version("%s", "3", "the best")
client.update_registered_model("%s", "multiplies")
"""
SHOW_MODELS = """
import json, mlflow, mlflow.pyfunc
client = mlflow.MlflowClient()
model = client.get_registered_model("%s")
champion = client.get_model_version_by_alias("%s", "champion")
logged = mlflow.search_logged_models(
    [client.get_experiment_by_name("%s").experiment_id], output_format="list")
print(json.dumps({
    "versions": sorted(int(one.version) for one in client.search_model_versions("name = '%s'")),
    "model": [model.description, model.tags.get("team"), {name: int(n) for name, n in model.aliases.items()}],
    "champion": [int(champion.version), champion.description, champion.tags.get("ok")],
    "run": client.get_run(champion.run_id).info.run_name,
    "predicted": list(mlflow.pyfunc.load_model("models:/%s@champion").predict([1, 2])),
    "first": list(mlflow.pyfunc.load_model("models:/%s/1").predict([1, 2])),
    "logged": sorted([one.name, one.params["factor"], one.status.name] for one in logged),
    "output": [one.step for one in client.get_run(champion.run_id).outputs.model_outputs],
}))
"""


@pytest.fixture(scope="module")
def whole_mlflow(server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> MlflowClient:
    """A client that can load models."""
    packages = (PACKAGE, *DATABASES, "numpy", "pandas")
    python = client_environment("mlflow-models", *packages) / "python"
    return MlflowClient(python, server, tmp_path_factory.mktemp("user"))


def _filled(script: str, name: str) -> str:
    return script.replace("%s", name)


@pytest.mark.runtimes
@pytest.mark.parametrize("kind", ["folder", "database"])
def test_models_are_imported_with_versions_and_aliases(
    server: RealServer, whole_mlflow: MlflowClient, tmp_path: Path, kind: str
) -> None:
    name = f"models-{kind}"
    path = tmp_path / ("mlruns" if kind == "folder" else "mlflow.db")
    uri = f"file://{path}" if kind == "folder" else f"sqlite:///{path}"
    local = {**LOCAL, "MLFLOW_TRACKING_URI": uri}
    (tmp_path / "mlruns").mkdir()
    begin = f"import os; os.chdir({str(tmp_path)!r})\n"
    whole_mlflow(begin + _filled(MODELS, name), **local)
    output = server.cli("runs", "import", str(path)).good().err
    assert "3 logged models and 2 versions of registered models were imported" in output
    shown = json.loads(whole_mlflow(_filled(SHOW_MODELS, name)).splitlines()[-1])
    assert shown == json.loads(
        whole_mlflow(begin + _filled(SHOW_MODELS, name), **local).splitlines()[-1]
    )
    assert (shown["versions"], shown["predicted"]) == ([1, 3], [4, 8])
    out = tmp_path / "out"
    output = server.cli("runs", "export", "-e", name, "-o", str(out)).good().err
    assert "3 logged models" in output
    exported = {**LOCAL, "MLFLOW_TRACKING_URI": f"file://{out}"}
    assert shown == json.loads(
        whole_mlflow(_filled(SHOW_MODELS, name), **exported).splitlines()[-1]
    )
    again = server.cli("runs", "import", str(out)).good().err
    assert "0 logged models and 0 versions of registered models were imported" in again
    again = server.cli("runs", "import", str(path)).good().err
    assert "0 logged models and 0 versions of registered models were imported" in again
    assert shown == json.loads(whole_mlflow(_filled(SHOW_MODELS, name)).splitlines()[-1])


@pytest.mark.runtimes
def test_a_model_that_the_server_has_is_left_alone(
    server: RealServer, whole_mlflow: MlflowClient, client: CloudMlClient, tmp_path: Path
) -> None:
    path = tmp_path / "mlruns"
    local = {**LOCAL, "MLFLOW_TRACKING_URI": f"file://{path}"}
    made = """
import mlflow
client = mlflow.MlflowClient()
client.create_registered_model("taken", description="%s")
if "%s" == "theirs":
    mlflow.set_experiment("taken")
    with mlflow.start_run() as run:
        mlflow.log_text("x", "model/MLmodel")
    client.create_model_version("taken", f"runs:/{run.info.run_id}/model", run.info.run_id)
"""
    whole_mlflow(made.replace("%s", "ours"))
    whole_mlflow(made.replace("%s", "theirs"), **local)
    output = server.cli("runs", "import", str(path)).good().err
    assert "not imported: the registered model taken" in output
    found = client.model_registry.model("taken")
    assert found["description"] == "ours"
    assert client.model_registry.versions("taken") == []


@pytest.mark.runtimes
def test_two_imports_at_once_bring_each_run_once(
    server: RealServer, whole_mlflow: MlflowClient, client: CloudMlClient, tmp_path: Path
) -> None:
    path, copy = tmp_path / "mlruns", tmp_path / "copy"
    local = {**LOCAL, "MLFLOW_TRACKING_URI": f"file://{path}"}
    whole_mlflow(WRITE % {"experiment": "at-once", "points": 3}, **local)
    shutil.copytree(path, copy)
    with alone(path):
        refused = server.cli("runs", "import", str(path))
        assert (refused.code, "another import of" in refused.err) == (1, True)
    with (
        server.spawn("runs", "import", str(path)) as first,
        server.spawn("runs", "import", str(copy)) as second,
    ):
        for one in (first, second):
            assert one.wait(120) == 0
    found = list(client.runs.search("at-once"))
    assert sorted(run.name for run in found) == ["bad", "child", "first"]
    assert all(run.tags["cloudml.import.done"] == "true" for run in found)
    (run,) = [one for one in found if one.name == "first"]
    assert {one.name: one.count for one in client.runs.series(run.uid)}["loss"] == 3
