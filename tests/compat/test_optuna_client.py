"""Optuna's client, unmodified, on studies that are kept here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cloud_ml.errors import NotFound
from support.optuna_client import OLDER, OptunaClient, install, install_dashboard, proxy
from support.server import RealServer, eventually, serving

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


def last_line(output: str) -> Any:
    return json.loads(output.splitlines()[-1])


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
    result = last_line(optuna(LOADED))
    assert result["numbers"] == list(range(30))
    assert set(result["states"]) <= {"COMPLETE", "PRUNED"}
    assert result["params"] == ["kind", "layers", "x"]
    assert (result["notes"], result["steps"], result["times"]) == (True, 4, True)
    assert result["attributes"] == {"team": "vision"}
    studies = server.client().studies
    (study,) = [each for each in studies.list() if each.name.startswith("two-w")]
    whole = studies.describe(study.name)
    assert len(whole.trials) == whole.ended == 30
    assert whole.best is not None
    assert [whole.best.number, whole.best.value] == result["best"]
    assert whole.space["layers"] == {"min": 1, "max": 8, "type": "int", "scale": "log"}
    shown = server.cli("hp", "trials", study.name, "--sort", "value").good().out
    assert "EarlyStopped" in shown or "PRUNED" not in result["states"]
    plot = server.home / "two.html"
    server.cli("hp", "plot", study.name, "-o", str(plot)).good()
    assert "layers" in plot.read_text()


SEVERAL = """
def objective(trial):
    x = trial.suggest_float("x", 0, 2)
    y = trial.suggest_float("y", 0, 2)
    return x ** 2 + y, (x - 2) ** 2 + y
study = optuna.create_study(study_name="several", storage=storage, directions=["minimize", "maximize"],
                            sampler=optuna.samplers.NSGAIISampler(population_size=5))
study.enqueue_trial({"x": 1.5})
study.enqueue_trial({"x": 0.5, "y": 1.0}, user_attrs={"mine": True})
waiting = [one.state.name for one in study.trials]
study.optimize(objective, n_trials=12)
try:
    optuna.create_study(study_name="several", storage=storage)
    again = ""
except optuna.exceptions.DuplicatedStudyError:
    again = "DuplicatedStudyError"
try:
    storage.set_trial_user_attr(study.trials[0]._trial_id, "a", 1)
    late = ""
except RuntimeError as error:  # Optuna 4.2 has no class of its own for it
    late = type(error).__name__
try:
    storage.get_trial(10 ** 9)
    missing = ""
except KeyError:
    missing = "KeyError"
print(json.dumps({
    "waiting": waiting, "first": study.trials[0].params["x"], "second": study.trials[1].params,
    "mine": study.trials[1].user_attrs, "count": len(study.trials),
    "front": sorted(one.number for one in study.best_trials),
    "errors": [again, late, missing],
    "directions": [one.name for one in study.directions],
    "names": optuna.get_all_study_names(storage),
}))
"""
DELETED = """
optuna.delete_study(study_name="several", storage=storage)
print(json.dumps("several" in optuna.get_all_study_names(storage)))
optuna.create_study(study_name="several", storage=storage)
"""


def test_several_objectives_queued_trials_and_errors(
    server: RealServer, optuna: OptunaClient
) -> None:
    result = last_line(optuna(SEVERAL))
    assert result["waiting"] == ["WAITING", "WAITING"]
    assert (result["first"], result["second"]) == (1.5, {"x": 0.5, "y": 1.0})
    assert (result["mine"], result["count"]) == ({"mine": True}, 12)
    assert result["errors"] == ["DuplicatedStudyError", "UpdateFinishedTrialError", "KeyError"]
    assert result["directions"] == ["MINIMIZE", "MAXIMIZE"]
    assert "several" in result["names"]
    whole = server.client().studies.describe("several")
    assert whole.objective == "value_0:min, value_1:max"
    assert sorted(one.number for one in whole.best_trials) == result["front"]
    assert last_line(optuna(DELETED)) is False


def test_a_server_that_is_killed_loses_no_trial(server: RealServer, optuna: OptunaClient) -> None:
    script = worker("killed", 12)
    with optuna.started(script) as first, optuna.started(script) as second:
        studies = server.client().studies
        for kill_at in (3, 9):
            eventually(lambda at=kill_at: _count(studies, "killed") >= at, "some trials have begun")
            server.kill()
            server.start()
        for one in (first, second):
            out, err = one.communicate(timeout=150)
            assert one.returncode == 0, out + err
    whole = server.client().studies.describe("killed")
    assert [one.number for one in whole.trials] == list(range(24))
    assert {one.state for one in whole.trials} <= {"Completed", "EarlyStopped"}


def _count(studies: Any, name: str) -> int:
    try:
        return len(studies.describe(name).trials)
    except NotFound:
        return 0


@pytest.mark.runtimes
@pytest.mark.parametrize("version", OLDER)
def test_clients_of_optuna_4_work(server: RealServer, optuna: OptunaClient, version: str) -> None:
    older = OptunaClient(install(version), optuna.port, optuna.home)
    name = f"optuna-{version.replace('.', '-')}"
    assert last_line(older("print(json.dumps(optuna.__version__))")) == version
    script = worker(name, 6)
    with older.started(script) as first, older.started(script) as second:
        for one in (first, second):
            out, err = one.communicate(timeout=120)
            assert one.returncode == 0, out + err
    result = last_line(older(LOADED.replace("Two workers", name)))
    assert result == last_line(optuna(LOADED.replace("Two workers", name)))
    assert (result["numbers"], result["params"]) == (list(range(12)), ["kind", "layers", "x"])
    older(SEVERAL.replace("several", f"{name}-several"))
    whole = server.client().studies.describe(f"{name}-several")
    assert whole.objective == "value_0:min, value_1:max"


SHOWN = """
import threading, urllib.request
import optuna_dashboard
from wsgiref.simple_server import WSGIRequestHandler, make_server
study = optuna.create_study(study_name="shown", storage=storage)
study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_int("n", 1, 3), n_trials=5)
class Quiet(WSGIRequestHandler):
    def log_message(self, *words): pass
server = make_server("127.0.0.1", 0, optuna_dashboard.wsgi(storage), handler_class=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
def ask(path, **more):
    url = f"http://127.0.0.1:{server.server_port}/api/{path}"
    asked = urllib.request.Request(url, **more)
    return json.loads(urllib.request.urlopen(asked, timeout=60).read() or "null")
studies = {one["study_name"]: one["study_id"] for one in ask("studies")["study_summaries"]}
number = studies["shown"]
detail = ask(f"studies/{number}?after=0")
note = json.dumps({"body": "hello", "version": 1}).encode()
ask(f"studies/{number}/note", method="PUT", data=note, headers={"Content-Type": "application/json"})
again = ask(f"studies/{number}?after=0")
(importances,) = ask(f"studies/{number}/param_importances")["param_importances"]
print(json.dumps({
    "studies": sorted(studies), "trials": [one["state"] for one in detail["trials"]],
    "params": sorted(one["name"] for one in detail["trials"][0]["params"]),
    "importances": sorted(one["name"] for one in importances),
    "note": again["note"]["body"],
}))
"""


@pytest.mark.runtimes
def test_optuna_dashboard_shows_studies(server: RealServer, optuna: OptunaClient) -> None:
    shown = OptunaClient(install_dashboard(), optuna.port, optuna.home)
    result = last_line(shown(SHOWN))
    assert "shown" in result["studies"]
    assert result["trials"] == ["Complete"] * 5
    assert result["params"] == result["importances"] == ["n", "x"]
    assert result["note"] == "hello"
