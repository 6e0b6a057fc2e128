"""MLflow's client, unmodified, in jobs: it finds the server by itself, and logs to the job's run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.mlflow_client import PACKAGE
from support.server import RealServer, eventually, serving, trainer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("mlflow-client"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


def train(
    server: RealServer, folder: Path, name: str, source: str, *options: str, also: str = ""
) -> list[str]:
    """What a job with MLflow's client prints. It must succeed."""
    made = trainer(folder / name, source, requirements_txt=f"{PACKAGE}\n{also}")
    words = ("jobs", "submit", str(made), "-n", name, *options, "--watch")
    ran = server.cli(*words, timeout_s=500)
    assert ran.code == 0, ran.out + ran.err
    return server.cli("jobs", "logs", name).good().out.splitlines()


def run_of(server: RealServer, name: str) -> Any:
    uid = server.cli("jobs", "describe", name, "-o", "json").good().json()["uid"]
    (found,) = server.cli("runs", "describe", uid, "-o", "json").good().json()
    return found


TWICE = """
import os, mlflow
from cloud_ml import job
job.params(layers=3)
mlflow.set_experiment("twice")
uids = []
for number in range(2):
    with mlflow.start_run() as run:
        uids.append(run.info.run_id)
        mlflow.log_param("number", number)
        mlflow.log_metric("loss", 0.5 - number)
        mlflow.log_text("hello", "note.txt")
parents = [mlflow.get_run(uid).data.tags.get("mlflow.parentRunId") for uid in uids]
own = os.environ["CLOUDML_JOB_ID"]
print("users", {mlflow.get_run(uid).data.tags["mlflow.user"] for uid in uids})
print("same", uids[0] == own, parents == [None, own], mlflow.artifacts.load_text(f"runs:/{own}/note.txt"))
"""


def test_the_first_run_is_the_job_and_the_second_is_its_child(
    server: RealServer, tmp_path: Path
) -> None:
    lines = train(server, tmp_path, "mlflow-twice", TWICE)
    run = run_of(server, "mlflow-twice")
    assert {"same True True hello", f"users {{{run['user']!r}}}"} <= set(lines)
    assert (run["experiment"], run["state"]) == ("twice", "FINISHED")
    assert (run["metrics"], run["params"]) == (
        {"loss": 0.5},
        {"number": "0", "layers": "3"},
    )
    # The token is in no file of the server: no record, no log, no plan of an attempt.
    for path in server.data.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24:
            assert b"cmj1." not in path.read_bytes(), path


def test_a_user_may_log_elsewhere(server: RealServer, tmp_path: Path) -> None:
    source = """
import os
print([name for name in sorted(os.environ) if name.startswith("MLFLOW_TRACKING_")])
"""
    lines = train(
        server, tmp_path, "mlflow-elsewhere", source,
        "-e", "MLFLOW_TRACKING_URI=http://mlflow.example.com",
    )  # fmt: skip
    assert "['MLFLOW_TRACKING_URI']" in lines


AUTOLOG = """
import mlflow
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
mlflow.sklearn.autolog(log_datasets=False)
data, classes = load_iris(return_X_y=True)
model = LogisticRegression(C=0.5, max_iter=200).fit(data, classes)
mlflow.sklearn.log_model(
    model, name="kept", registered_model_name="iris", serialization_format="cloudpickle"
)
mlflow.MlflowClient().set_registered_model_alias("iris", "champion", 1)
loaded = mlflow.sklearn.load_model("models:/iris@champion")
print("equal", (loaded.predict(data) == model.predict(data)).all())
"""


def test_what_autolog_logs_is_the_run_of_the_job(server: RealServer, tmp_path: Path) -> None:
    lines = train(server, tmp_path, "mlflow-autolog", AUTOLOG, also="scikit-learn\npandas\n")
    assert "equal True" in lines
    run = run_of(server, "mlflow-autolog")
    assert (run["params"]["C"], run["params"]["max_iter"]) == ("0.5", "200")
    assert run["metrics"]["training_accuracy_score"] > 0.9
    shown = server.cli("storage", "ls", "-r", f"fds://cloudml/mlflow/{run['uid']}/").good().out
    assert "artifacts" in shown


LASTING = """
import os, mlflow
with mlflow.start_run() as run:
    step = 0
    while not os.path.exists(os.environ["CLOUDML_STORAGE"] + "/cloudml/mlflow-go"):
        mlflow.log_metric("loss", step, step=step)
        step += 1
    mlflow.log_param("steps", step)
"""


def test_a_job_goes_on_to_log_when_the_server_was_killed(
    server: RealServer, tmp_path: Path
) -> None:
    made = trainer(tmp_path / "lasting", LASTING, requirements_txt=f"{PACKAGE}\n")
    server.cli("jobs", "submit", str(made), "-n", "mlflow-lasting").good()

    def steps() -> int:
        found = run_of(server, "mlflow-lasting")["metrics"]
        return int(found.get("loss", 0))

    eventually(lambda: steps() > 3, "the job logs", limit_s=300)
    server.kill()
    server.start()
    before = steps()
    eventually(lambda: steps() > before + 3, "it logs again", limit_s=120)
    go = tmp_path / "mlflow-go"
    go.touch()
    server.client().storage.upload(go, "fds://cloudml/mlflow-go")
    server.cli("jobs", "wait", "mlflow-lasting", timeout_s=120).good()
    run = run_of(server, "mlflow-lasting")
    assert float(run["metrics"]["loss"]) == int(run["params"]["steps"]) - 1
    shown = server.cli("runs", "metrics", run["uid"], "-o", "json").good().json()
    assert [one["count"] for one in shown] == [int(run["params"]["steps"])]


def test_jobs_in_the_network_of_the_machine_keep_their_address(tmp_path: Path) -> None:
    source = """
import os, mlflow
with mlflow.start_run() as run:
    mlflow.log_metric("loss", 1)
print("same", run.info.run_id == os.environ["CLOUDML_JOB_ID"], os.environ["MLFLOW_TRACKING_URI"])
print("telemetry is off", os.environ["MLFLOW_DISABLE_TELEMETRY"])
"""
    folder, same_lines = tmp_path / "server", []
    folder.mkdir()
    with serving(folder, CLOUDML_ENGINE_NETWORK="host") as server:
        for name in ("mlflow-host-a", "mlflow-host-b"):
            lines = train(server, tmp_path, name, source)
            same_lines += [line for line in lines if line.startswith("same")]
            assert "telemetry is off true" in lines
            server.kill()
            server.start()
        (first, second) = same_lines
        assert first == second
        assert first.startswith("same True http://127.0.0.1:")
        assert not first.endswith(f":{server.port}/mlflow")


def test_jobs_without_a_network_log_as_others_do(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    with serving(folder, CLOUDML_ENGINE_NETWORK="none") as server:
        lines = train(server, tmp_path, "mlflow-none", TWICE)
        run = run_of(server, "mlflow-none")
        assert {"same True True hello", f"users {{{run['user']!r}}}"} <= set(lines)
        assert run["metrics"] == {"loss": 0.5}
        assert not any("MLflow's client does not reach the server" in one for one in lines)
