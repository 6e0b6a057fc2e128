"""Clients of MLflow's API that log at the same time, send again, and send what is no good: nothing
that was acknowledged is lost, doubled, or half there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from support.server import RealServer, serving

pytestmark = pytest.mark.slow

Ask = Callable[..., requests.Response]
_TOGETHER, _CLIENTS = 24, 6


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with serving(tmp_path_factory.mktemp("server"), CLOUDML_TRACKING_SEARCH_S=0.5) as server:
        yield server


@pytest.fixture
def post(server: RealServer) -> Ask:
    keys = server.credentials["access_key"], server.credentials["secret_key"]

    def post(path: str, **fields: Any) -> requests.Response:
        url = f"{server.endpoint}/mlflow/api/2.0/mlflow/{path}"
        return requests.post(url, json=fields, auth=keys, timeout=60)

    return post


@pytest.fixture
def get(server: RealServer) -> Ask:
    keys = server.credentials["access_key"], server.credentials["secret_key"]

    def get(path: str, **fields: Any) -> requests.Response:
        url = f"{server.endpoint}/mlflow/api/2.0/mlflow/{path}"
        return requests.get(url, params=fields, auth=keys, timeout=60)

    return get


def make_run(post: Ask, **fields: Any) -> str:
    answer = post("runs/create", **fields).json()
    uid: str = answer["run"]["info"]["run_id"]
    return uid


def at_once(call: Callable[[int], requests.Response]) -> list[requests.Response]:
    with ThreadPoolExecutor(_CLIENTS) as clients:
        return list(clients.map(call, range(_TOGETHER)))


def test_what_clients_change_at_the_same_time_is_all_kept(post: Ask, get: Ask) -> None:
    run = make_run(post)
    experiment = post("experiments/create", name="together").json()["experiment_id"]

    def change(number: int) -> requests.Response:
        post("runs/log-inputs", run_id=run, datasets=[{"dataset": {"name": f"{number}"}}])
        post("runs/log-model", run_id=run, model_json=json.dumps({"number": number}))
        return post(
            "experiments/set-experiment-tag", experiment_id=experiment, key=f"{number}", value="x"
        )

    assert {answer.status_code for answer in at_once(change)} == {200}
    found = get("runs/get", run_id=run).json()["run"]
    tags = {one["key"]: one["value"] for one in found["data"]["tags"]}
    kept = get("experiments/get", experiment_id=experiment).json()["experiment"]["tags"]
    assert len(found["inputs"]["dataset_inputs"]) == _TOGETHER
    assert len(json.loads(tags["mlflow.log-model.history"])) == _TOGETHER
    assert len(kept) == _TOGETHER


def test_one_client_of_many_gives_a_parameter_its_value(post: Ask, get: Ask) -> None:
    run = make_run(post)
    answers = at_once(
        lambda number: post("runs/log-parameter", run_id=run, key="p", value=f"{number}")
    )
    taken = [number for number, answer in enumerate(answers) if answer.ok]
    (param,) = get("runs/get", run_id=run).json()["run"]["data"]["params"]
    assert [f"{number}" for number in taken] == [param["value"]]


def test_a_deleted_experiment_stays_deleted(post: Ask, get: Ask) -> None:
    experiment = post("experiments/create", name="deleted").json()["experiment_id"]

    def change(number: int) -> requests.Response:
        if number == _CLIENTS:
            return post("experiments/delete", experiment_id=experiment)
        return post(
            "experiments/set-experiment-tag", experiment_id=experiment, key="t", value=f"{number}"
        )

    assert at_once(change)[_CLIENTS].ok
    found = get("experiments/get", experiment_id=experiment).json()["experiment"]
    assert found["lifecycle_stage"] == "deleted"


def test_a_batch_that_is_sent_again_is_there_once(post: Ask, get: Ask) -> None:
    run = make_run(post)
    points = [
        {"key": "loss", "value": 1 / (step + 1), "timestamp": step, "step": step}
        for step in range(1700)
    ]
    for batch in (points[:700], points[700:], points[700:]):
        assert post("runs/log-batch", run_id=run, metrics=batch).ok
    found = get("metrics/get-history", run_id=run, metric_key="loss").json()["metrics"]
    assert [point["step"] for point in found] == list(range(1700))


def test_a_batch_that_is_refused_leaves_nothing(post: Ask, get: Ask) -> None:
    run = make_run(post, run_name="mine")
    too_long = {"key": "mlflow.runName", "value": "n" * 600}
    refused = post(
        "runs/log-batch", run_id=run, params=[{"key": "p", "value": "1"}], tags=[too_long]
    )
    assert refused.status_code == 400
    found = get("runs/get", run_id=run).json()["run"]
    assert found["data"]["params"] == []
    assert found["info"]["run_name"] == "mine"


@pytest.mark.parametrize("tag", ["no JSON", "5", "[" * 8000])
def test_a_model_needs_a_list_of_models(post: Ask, tag: str) -> None:
    run = make_run(post)
    assert post("runs/set-tag", run_id=run, key="mlflow.log-model.history", value=tag).ok
    refused = post("runs/log-model", run_id=run, model_json="{}")
    assert (refused.status_code, refused.json()["field"]) == (400, "model_json")


def test_a_search_that_takes_long_is_ended(post: Ask, get: Ask) -> None:
    """Eight of them held all connections that read, for minutes."""
    experiment = post("experiments/create", name="slow").json()["experiment_id"]
    slow = {"key": "t", "value": "a" * 7000 + "b"}
    for _ in range(12):
        run = make_run(post, experiment_id=experiment, tags=[slow])
    pattern = "%" + "a" * 900 + "b%"
    text = " AND ".join([f"tags.t LIKE '{pattern}'"] * 50)

    def search(_number: int) -> requests.Response:
        return post("runs/search", experiment_ids=[experiment], filter=text)

    with ThreadPoolExecutor(8) as clients:
        searches = [clients.submit(search, number) for number in range(8)]
        assert get("runs/get", run_id=run).ok
        refused = [one.result() for one in searches]
    assert {answer.status_code for answer in refused} <= {400, 503}
    assert "filter" in {answer.json().get("field") for answer in refused}
    short = post("runs/search", experiment_ids=[experiment], filter="tags.t LIKE 'aa%'")
    assert len(short.json()["runs"]) == 12


def test_a_page_of_long_runs_ends_early(post: Ask, get: Ask) -> None:
    """1,000 runs of some megabytes each are more than a server has memory for."""
    experiment = post("experiments/create", name="long").json()["experiment_id"]
    batch = [{"key": f"p{number}", "value": "x" * 6000} for number in range(100)]
    runs = [make_run(post, experiment_id=experiment) for _ in range(45)]
    for run in runs[:30]:
        assert post("runs/log-batch", run_id=run, params=batch).ok
    found, token, pages = [], "", 0
    while pages == 0 or token:
        answer = post("runs/search", experiment_ids=[experiment], page_token=token)
        assert len(answer.content) < 30_000_000
        page = answer.json()
        found += [run["info"]["run_id"] for run in page["runs"]]
        token, pages = page.get("next_page_token", ""), pages + 1
    assert found == runs[::-1]
    assert pages > 1


def test_no_file_takes_the_place_of_the_folder_of_artifacts(server: RealServer, post: Ask) -> None:
    keys = server.credentials["access_key"], server.credentials["secret_key"]
    folder = f"{server.endpoint}/mlflow/api/2.0/mlflow-artifacts/artifacts/{make_run(post)}"
    for path in ("/artifacts", "/artifacts/", "/artifacts//"):
        refused = requests.put(folder + path, data=b"x", auth=keys, timeout=60)
        assert (refused.status_code, refused.json()["field"]) == (400, "path")
    assert requests.put(folder + "/artifacts/a", data=b"x", auth=keys, timeout=60).ok


def test_a_number_beyond_all_is_no_infinity(post: Ask) -> None:
    run = make_run(post)
    refused = post("runs/log-metric", run_id=run, key="m", value="1e999", timestamp=1)
    assert (refused.status_code, refused.json()["field"]) == (400, "value")
    assert post("runs/log-metric", run_id=run, key="m", value="Infinity", timestamp=1).ok
