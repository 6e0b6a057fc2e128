"""Optuna's client, unmodified, on studies that are kept here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.optuna_client import OptunaClient, install, proxy
from support.server import RealServer, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("optuna-client"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def optuna(server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OptunaClient]:
    with proxy(server) as port:
        yield OptunaClient(install(), port, tmp_path_factory.mktemp("user"))


def last_line(said: str) -> Any:
    return json.loads(said.splitlines()[-1])


WORKER = """
def objective(trial):
    x = trial.suggest_float("x", -10, 10)
    layers = trial.suggest_int("layers", 1, 8, log=True)
    kind = trial.suggest_categorical("kind", ["sgd", "adam", None])
    for step in range(4):
        trial.report((x - 2) ** 2 + layers + 4 - step, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    trial.set_user_attr("note", {"kind": kind})
    return (x - 2) ** 2 + layers
study = optuna.create_study(
    study_name=NAME, storage=storage, load_if_exists=True,
    sampler=optuna.samplers.TPESampler(n_startup_trials=5, multivariate=True),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=3))
study.optimize(objective, n_trials=COUNT)
"""


def worker(name: str, count: int) -> str:
    return WORKER.replace("NAME", repr(name)).replace("COUNT", str(count))


LOADED = """
study = optuna.load_study(study_name="Two workers", storage=storage)
print(json.dumps({
    "numbers": [one.number for one in study.trials],
    "states": sorted({one.state.name for one in study.trials}),
    "best": [study.best_trial.number, study.best_value],
    "params": sorted(study.best_params),
    "notes": all("note" in one.user_attrs for one in study.trials if one.state.name == "COMPLETE"),
    "steps": len(study.best_trial.intermediate_values),
    "times": all(one.duration.total_seconds() >= 0 for one in study.trials),
    "attributes": study.user_attrs,
}))
"""


def test_two_workers_run_each_trial_once(server: RealServer, optuna: OptunaClient) -> None:
    script = worker("Two workers", 15)
    optuna(script.replace("study.optimize", "study.set_user_attr('team', 'vision') #"))
    with optuna.started(script) as first, optuna.started(script) as second:
        for one in (first, second):
            out, err = one.communicate(timeout=120)
            assert one.returncode == 0, out + err
    said = last_line(optuna(LOADED))
    assert said["numbers"] == list(range(30))
    assert set(said["states"]) <= {"COMPLETE", "PRUNED"}
    assert said["params"] == ["kind", "layers", "x"]
    assert (said["notes"], said["steps"], said["times"]) == (True, 4, True)
    assert said["attributes"] == {"team": "vision"}
    studies = server.client().studies
    (study,) = [each for each in studies.list() if each.name.startswith("two-w")]
    whole = studies.describe(study.name)
    assert len(whole.trials) == whole.ended == 30
    assert whole.best is not None
    assert [whole.best.number, whole.best.value] == said["best"]
    assert whole.space["layers"] == {"min": 1, "max": 8, "type": "int", "scale": "log"}
    shown = server.cli("hp", "trials", study.name, "--sort", "value").good().out
    assert "EarlyStopped" in shown or "PRUNED" not in said["states"]
    plot = server.home / "two.html"
    server.cli("hp", "plot", study.name, "-o", str(plot)).good()
    assert "layers" in plot.read_text()
