"""``mlflow.autolog`` of frameworks inside jobs: what they log is the run of the job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.mlflow_client import PACKAGE
from support.server import RealServer, serving, trainer

LIMIT_S = 1500
pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(LIMIT_S)]


class Example(NamedTuple):
    """Code that trains with autolog, the runtime and packages that it needs, and what is logged."""

    runtime: str
    packages: str
    source: str
    params: dict[str, str]
    metric: str
    points: int


XGBOOST = """
import mlflow, numpy, xgboost
mlflow.xgboost.autolog(log_models=False)
data = numpy.random.default_rng(0).normal(size=(200, 3))
matrix = xgboost.DMatrix(data, label=data[:, 0] > 0)
xgboost.train({"objective": "binary:logistic", "max_depth": 2, "eval_metric": "logloss"},
              matrix, num_boost_round=5, evals=[(matrix, "train")])
"""
KERAS = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras, mlflow, numpy
mlflow.keras.autolog(log_models=False)
data = numpy.random.default_rng(0).normal(size=(64, 3)).astype("float32")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
model.fit(data, data[:, :1], epochs=3, batch_size=16, verbose=0)
"""
LIGHTNING = """
import lightning, mlflow, torch
mlflow.pytorch.autolog(log_models=False)
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True, on_step=False)
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)
x = torch.randn(64, 3)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :1]), batch_size=16)
lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                  enable_progress_bar=False).fit(Model(), loader)
"""
EXAMPLES = {
    "xgboost": Example(
        "xgboost==3.2", "pandas\nscikit-learn", XGBOOST, {"max_depth": "2"}, "train-logloss", 5
    ),
    "keras": Example("keras==3-jax", "pandas", KERAS, {"epochs": "3"}, "loss", 3),
    "lightning": Example(
        "pytorch==2.13", "pandas\nlightning", LIGHTNING, {"epochs": "3"}, "loss", 3
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.mark.parametrize("name", EXAMPLES)
def test_autolog_logs_to_the_run_of_the_job(server: RealServer, tmp_path: Path, name: str) -> None:
    example = EXAMPLES[name]
    job = f"autolog-{name}"
    made = trainer(
        tmp_path / name, example.source, requirements_txt=f"{PACKAGE}\n{example.packages}\n"
    )
    framework, _, version = example.runtime.partition("==")
    words = ("jobs", "submit", str(made), "-n", job, "-F", framework, "-V", version, "--watch")
    ran = server.cli(*words, timeout_s=LIMIT_S)
    if ran.code and "Failed to fetch" in ran.out + ran.err:
        pytest.skip("the packages cannot be fetched here")
    assert ran.code == 0, ran.out + ran.err
    uid = server.cli("jobs", "describe", job, "-o", "json").good().json()["uid"]
    (run,) = server.cli("runs", "describe", uid, "-o", "json").good().json()
    assert example.params.items() <= run["params"].items()
    series = server.cli("runs", "metrics", job, "-o", "json").good().json()
    (found,) = (one for one in series if one["name"] == example.metric)
    assert (found["count"], found["task"]) == (example.points, "client")
