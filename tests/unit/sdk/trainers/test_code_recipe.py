"""Which recipe a job of several workers has by its code, where the user names none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_ml.client import CloudMlClient
from cloud_ml.domain.jobs.roles import recipe_of
from cloud_ml.environments.catalog import Catalog
from cloud_ml.environments.trainers import detect
from cloud_ml.errors import InvalidRequest
from cloud_ml.models.jobs.restart import Restart, RestartRule
from cloud_ml.models.jobs.train_job import RoleSpec, TrainJob
from cloud_ml.sdk.trainers import code_recipe
from cloud_ml.sdk.trainers.code_recipe import CodeRecipe, recipe_of_code
from support.fake_server import FakeServer, Reply, Seen, refusal

DDP = "import torch.distributed as dist\n"


def job_of(folder: Path, **fields: Any) -> TrainJob:
    return TrainJob("ddp", "train", str(folder), **({"worker_count": 2} | fields))


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ("" if "." in name else ".py"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def recipe(folder: Path, **fields: Any) -> str:
    found = recipe_of_code(job_of(folder, **fields))
    return "" if found is None else found.recipe


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import torch", "pytorch"),
        ("def run():\n    from torch import nn", "pytorch"),
        ("try:\n    import lightning as L\nexcept ImportError:\n    L = None", "pytorch"),
        ("import jax, numpy", "jax"),
        ("import optax\nimport torch", "pytorch"),
        ("import xgboost as xgb", "xgboost"),
        ("import lightgbm", "lightgbm"),
        ("import torch\nimport tensorflow as tf", ""),
        ("import keras, torch", ""),
        ("import tensorflow as tf", ""),
        ("import numpy", ""),
        ("import sklearn", ""),
        ("print('import torch')  # import torch", ""),
        ("from . import torch", ""),
        ("import torch\nprint('not tensorflow')", "pytorch"),
        ("import torch\nprint 'of Python 2'", ""),
    ],
)
def test_the_recipe_follows_from_what_code_imports(tmp_path: Path, code: str, found: str) -> None:
    assert recipe(write(tmp_path, train=code)) == found


@pytest.mark.parametrize(
    "line", ["import torch", "import jax", "import xgboost", "import lightgbm"]
)
def test_it_is_the_framework_that_the_server_finds(tmp_path: Path, line: str) -> None:
    write(tmp_path, train=line)
    verdict = detect.decide(detect.read(tmp_path), [], Catalog.load())
    named = TrainJob("a", "train", "fds://b/c.tar.gz", worker_count=2, framework=verdict.framework)
    assert recipe(tmp_path) == recipe_of(named)


def test_the_modules_are_those_of_the_runtimes() -> None:
    """Otherwise the client and the server would take the same code for different things."""
    shipped = {one.name: one for one in Catalog.load().runtimes if one.default}
    ranks = [shipped[name].rank for name in code_recipe.MODULES]
    assert ranks == sorted(ranks, reverse=True)
    for name, modules in code_recipe.MODULES.items():
        assert set(shipped[name].imports) == set(modules)
    assert set(code_recipe.UNCLEAR) == {
        module
        for name in ("tensorflow", "keras", "paddlepaddle")
        for module in shipped[name].imports
    }


def test_the_file_that_tells_it_is_named_and_the_module_goes_first(tmp_path: Path) -> None:
    write(tmp_path, a=DDP, train=DDP, z=DDP)
    assert recipe_of_code(job_of(tmp_path)) == CodeRecipe("pytorch", "train.py imports torch")
    found = recipe_of_code(job_of(tmp_path, worker_count="2:8"))
    assert found is not None


def test_code_that_would_not_be_sent_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, train=DDP, old__tf="import tensorflow", **{".cloudmlignore": "old/\n"})
    write(tmp_path / ".venv", **{"pyvenv.cfg": ""}, tf="import tensorflow")
    assert recipe(tmp_path) == "pytorch"
    (tmp_path / ".cloudmlignore").unlink()
    assert recipe(tmp_path) == ""


def test_a_script_counts_with_what_it_imports(tmp_path: Path) -> None:
    write(tmp_path, train="import model", model=DDP, other="import tensorflow")
    found = recipe_of_code(job_of(tmp_path / "train.py"))
    assert found == CodeRecipe("pytorch", "model.py imports torch")


@pytest.mark.parametrize(
    "fields",
    [
        {"worker_count": None},
        {"ps_count": 1},
        {"framework": "python"},
        {"recipe": "cluster"},
        {"framework_version": "1"},
        {"master_spec": RoleSpec(count=1)},
        {"worker_count": None, "cluster_spec": {"worker": RoleSpec(count=2)}},
        {"cluster_arguments": True},
        {"restart": Restart(rules=[RestartRule(action="fail", roles=["master"])])},
        {"requirements": ["tensorflow-cpu>=2.16"]},
    ],
)
def test_who_says_more_is_believed(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert recipe(write(tmp_path, train=DDP), **fields) == ""


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("requirements.txt", "torch==2.9\ntransformers", "pytorch"),
        ("requirements.txt", "transformers\ntorchmetrics", ""),
        ("requirements.txt", "torch\nTensorFlow >= 2", ""),
        ("requirements.txt", "torch  # instead of tensorflow", "pytorch"),
        ("requirements.txt", "torch\ntensorboard", "pytorch"),
        ("pyproject.toml", '[project]\ndependencies = ["torch", "keras"]', ""),
    ],
)
def test_code_of_transformers_is_known_by_its_requirements(
    tmp_path: Path, name: str, text: str, found: str
) -> None:
    write(tmp_path, train="from transformers import Trainer", **{name: text})
    assert recipe(tmp_path) == found


def test_what_cannot_be_read_is_left_to_the_server(tmp_path: Path) -> None:
    assert recipe(tmp_path / "missing") == ""
    assert recipe(tmp_path) == ""
    (write(tmp_path, train=DDP) / "link").symlink_to("/etc/passwd")
    assert recipe(tmp_path) == ""
    archive = tmp_path / "code.tar.gz"
    archive.write_bytes(b"")
    assert recipe(archive) == ""
    many = tmp_path / "many"
    write(many, train=DDP, **{f"m{number}": "" for number in range(500)})
    assert recipe(many) == ""


@pytest.mark.parametrize("count", [2, "2:8"])
def test_the_sdk_sets_it_and_the_server_checks_it(
    client: CloudMlClient, server: FakeServer, tmp_path: Path, count: int | str
) -> None:
    job = job_of(write(tmp_path, train=DDP), worker_count=count)
    client.check_train_job(job)
    assert client.submit_train_job(job).job.spec["recipe"] == "pytorch"
    assert job.recipe is None
    checked = [one.document["recipe"] for one in server.seen if one.path.endswith("/check")]
    assert checked == ["pytorch", "pytorch"]


def test_trials_of_a_study_have_it_too(
    client: CloudMlClient, server: FakeServer, tmp_path: Path
) -> None:
    recipes = []

    def answer(seen: Seen) -> Reply:
        if seen.path == "/api/v1/studies":
            recipes.append(seen.document["job"]["recipe"])
            return refusal(InvalidRequest("no studies here", field="name"), 400)
        return api(seen)

    api, server.handler = server.handler, answer
    with pytest.raises(InvalidRequest, match="no studies here"):
        client.studies.submit(job_of(write(tmp_path, train=DDP)), {"lr": [0.1]})
    assert recipes == ["pytorch"]
