"""The registry of models, as MLflow's client uses it, unmodified, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
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


LIVES = """
import json, mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException
client = MlflowClient()
with mlflow.start_run() as run:
    mlflow.log_text("weights", "model/data.txt")
uid = run.info.run_id
made = client.create_registered_model("net one", {"team": "vision"}, "first words")
first = client.create_model_version("net one", f"runs:/{uid}/model", uid, {"a": "1"}, description="v")
logged = client.create_logged_model("0", name="net", source_run_id=uid).model_id
client.finalize_logged_model(logged, LoggedModelStatus.READY)
second = mlflow.register_model(f"models:/{logged}", "net one", tags={"b": "2"})
client.set_registered_model_tag("net one", "more", "x")
client.delete_registered_model_tag("net one", "team")
client.update_registered_model("net one", "other words")
client.set_model_version_tag("net one", "1", "c", "3")
client.delete_model_version_tag("net one", "1", "a")
client.update_model_version("net one", "1", "words")
client.set_registered_model_alias("net one", "champion", "1")
client.set_registered_model_alias("net one", "old", "2")
client.delete_registered_model_alias("net one", "old")
client.transition_model_version_stage("net one", "1", "Production")
client.transition_model_version_stage("net one", "2", "production", archive_existing_versions=True)
found, one = client.get_registered_model("net one"), client.get_model_version("net one", "1")
by_alias = client.get_model_version_by_alias("net one", "champion")
latest = sorted((each.version, each.current_stage) for each in client.get_latest_versions("net one"))
files = [each.path for each in mlflow.artifacts.list_artifacts("models:/net one@champion")]
client.rename_registered_model("net one", "net")
renamed = client.get_registered_model("net").name
still = sorted(int(each.version) for each in client.search_model_versions("name = 'net'"))
client.delete_model_version("net", "1")
gone = client.get_registered_model("net").aliases
third = client.create_model_version("net", f"runs:/{uid}/model").version
client.delete_registered_model("net")
refusals = []
for ask in (
    lambda: client.get_registered_model("net"),
    lambda: client.create_registered_model("a/b"),
    lambda: client.create_registered_model("twice") and client.create_registered_model("twice"),
    lambda: client.create_model_version("twice", "/etc/passwd"),
    lambda: client.create_model_version("twice", "mlflow-artifacts:/a/../../b"),
    lambda: client.get_model_version("twice", "7"),
    lambda: client.set_registered_model_alias("twice", "latest", "1"),
    lambda: client.get_model_version_by_alias("twice", "none"),
    lambda: client.transition_model_version_stage("twice", "1", "Elsewhere"),
):
    try:
        ask()
    except MlflowException as error:
        refusals.append(error.error_code)
print(json.dumps([
    made.tags, made.description, first.version, second.version, found.tags, found.description,
    one.tags, one.description, list(one.aliases), one.run_id == uid, by_alias.version, latest, files,
    renamed, still, gone, third, len(client.search_model_versions("name = 'net'")), refusals,
]))
"""


def test_models_and_versions_live(mlflow: MlflowClient) -> None:
    assert last_line(mlflow(LIVES)) == [
        {"team": "vision"}, "first words", "1", "2", {"more": "x"}, "other words",
        {"c": "3"}, "words", ["champion"], True, "1", [["1", "Archived"], ["2", "Production"]],
        ["data.txt"], "net", [1, 2], {}, "3", 0,
        ["RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "RESOURCE_ALREADY_EXISTS",
         "INVALID_PARAMETER_VALUE", "INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST",
         "INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"],
    ]  # fmt: skip


SEARCHED = """
import json, mlflow
from mlflow import MlflowClient
client, uid = MlflowClient(), None
for number in range(5):
    client.create_registered_model(f"found{number}", {"number": str(number)})
with mlflow.start_run() as run:
    uid = run.info.run_id
client.create_model_version("found3", "s3://bucket/a", uid, {"kind": "x"})
client.create_model_version("found3", "s3://bucket/b")
client.create_model_version("found1", "s3://bucket/c", uid)
def models(text, **more):
    return [each.name for each in client.search_registered_models(text, **more)]
def versions(text, **more):
    return [f"{each.name}/{each.version}" for each in client.search_model_versions(text, **more)]
page = client.search_registered_models("name LIKE 'found%'", max_results=3)
rest = client.search_registered_models("name LIKE 'found%'", max_results=3, page_token=page.token)
print(json.dumps([
    models("name = 'found2'"), models("name ILIKE 'FOUND%' AND tags.number = '4'"),
    models("name LIKE 'found%'", order_by=["name DESC"])[:2],
    models("tags.`mlflow.prompt.is_prompt` != 'true' AND name LIKE 'found%'")[:1],
    [each.name for each in page], [each.name for each in rest], rest.token,
    sorted(versions(f"run_id = '{uid}'")), versions("name = 'found3' AND version_number > 1"),
    versions("source_path LIKE '%bucket/c'"), versions("tags.kind = 'x'"),
    versions("name = 'found3'", order_by=["version_number ASC"]), versions("name = 'nothing'"),
]))
"""


def test_models_and_versions_are_searched(mlflow: MlflowClient) -> None:
    assert last_line(mlflow(SEARCHED)) == [
        ["found2"], ["found4"], ["found4", "found3"], ["found0"],
        ["found0", "found1", "found2"], ["found3", "found4"], "",
        ["found1/1", "found3/1"], ["found3/2"], ["found1/1"], ["found3/1"],
        ["found3/1", "found3/2"], [],
    ]  # fmt: skip
