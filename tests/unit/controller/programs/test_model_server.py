"""Which framework a model needs, by the files of its newest version."""

from __future__ import annotations

import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloud_ml.controller.programs.model_requirements import (
    FRAMEWORKS,
    ModelRequirements,
    nothing_at,
    requirements_of,
)
from cloud_ml.controller.programs.model_server import ModelServerPackage, ModelServers
from cloud_ml.domain.records import Key, Record
from cloud_ml.domain.services.spec import Release, replica
from cloud_ml.domain.workloads.phases import WorkloadStatus
from cloud_ml.models.common import parse_object_uri
from cloud_ml.models.services import model_files
from cloud_ml.models.services.model_service import ModelService
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.serving.versions import single_model
from support.controller_world import World

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("keys", "framework"),
    [
        (["m/1/model.onnx"], "python"),
        (["m/00000001/saved_model.pb", "m/00000001/export.meta"], "tensorflow"),
        (["m/2/model.onnx", "m/10/saved_model.pb"], "tensorflow"),
        (["m/2/model.onnx", "m/10/notes.txt"], "python"),
        (["m/best/model.onnx"], None),
        (["m/model.onnx"], "python"),
        (["m/model.onnx", "m/1/notes.txt"], None),
        (["model.onnx"], None),
        ([], None),
    ],
)
def test_by_the_newest_version_of_a_known_format(keys: list[str], framework: str | None) -> None:
    objects = MemoryObjectStore()
    objects.create_bucket("cloudml")
    for key in keys:
        with objects.writer("cloudml", key) as writer:
            writer.write(b"x")
            writer.commit()
    required = requirements_of(objects, parse_object_uri("model_uri", "fds://cloudml/m"))
    assert (required.framework if required else None) == framework


def test_what_lies_there_instead_is_told() -> None:
    objects = MemoryObjectStore()
    objects.create_bucket("cloudml")
    for number in range(7):
        with objects.writer("cloudml", f"m/{number}/notes.txt") as writer:
            writer.write(b"x")
            writer.commit()
    message = nothing_at(objects, parse_object_uri("model_uri", "fds://cloudml/m"))
    assert message.startswith(
        "fds://cloudml/m has no model: looked for a folder with a number for its name, such as"
    )
    assert (
        "such as fds://cloudml/m/1, that holds one of saved_model.pb, export.meta, model.keras"
        in message
    )
    assert message.endswith("there is 0/, 1/, 2/, 3/, 4/ …")


def test_the_wheel_of_the_model_server_has_every_module_of_ours_that_it_imports(
    tmp_path: Path,
) -> None:
    source = ModelServerPackage(tmp_path).source(ModelRequirements("python"))
    with zipfile.ZipFile(tmp_path / source.digest / source.name) as wheel:
        names = set(wheel.namelist())
        content = b"\n".join(wheel.read(name) for name in names if name.endswith(".py")).decode()
    modules = {
        name.replace(".", "/")
        for name in re.findall(r"^ *from (cloud_ml\.[\w.]+) import", content, re.MULTILINE)
    }
    assert "cloud_ml/net/http2/frames" in modules
    assert [
        name for name in sorted(modules) if not {f"{name}.py", f"{name}/__init__.py"} & names
    ] == []


def test_clients_server_and_model_server_know_the_same_files() -> None:
    assert set(model_files.MODEL_FILES) == set(FRAMEWORKS)
    assert model_files.MODEL_FILES == single_model.MODEL_FILES
    assert model_files.ENDINGS == single_model.ENDINGS


@pytest.mark.parametrize(
    ("name", "content", "framework"),
    [
        ("net.pth", b"x", "pytorch"),
        ("churn.pickle", b"x", "scikit-learn"),
        ("clf.json", b'{"learner":{}}', "xgboost"),
        ("churn.txt", b"tree\nversion=v4\n", "lightgbm"),
        ("model.txt", b"x", "lightgbm"),
        ("metrics.json", b'{"loss": 1}', None),
        ("requirements.txt", b"numpy\n", None),
        ("churn.csv", b"x", None),
    ],
)
def test_one_file_in_a_bucket_is_known_as_on_the_users_machine(
    name: str, content: bytes, framework: str | None
) -> None:
    objects = MemoryObjectStore()
    objects.create_bucket("cloudml")
    objects.put("cloudml", f"runs/{name}", content)
    needed = requirements_of(objects, parse_object_uri("model_uri", f"fds://cloudml/runs/{name}"))
    assert (needed and needed.framework) == framework


async def test_names_in_a_bucket_of_another_organisation_are_not_told(tmp_path: Path) -> None:
    """A bucket of that name may have become another organisation's since the service was made."""
    world = World(tmp_path)
    try:
        other = world.identities.create_organisation("others", default_bucket="theirs")
        world.storage.create_bucket(other, "theirs")
        world.objects.put("theirs", "m/secret-plan.txt", b"x")
        servers = ModelServers(
            world.objects, world.storage, ModelServerPackage(tmp_path / "packages"), world.offload
        )
        spec = replica(Release(1, ModelService("m", "v1", "fds://theirs/m")))
        now = datetime(2026, 1, 1, tzinfo=UTC)
        job = Record(
            Key("replica", world.admin.org, "r-1", "u"),
            "me",
            1,
            1,
            now,
            now,
            spec,
            WorkloadStatus(),
        )
        provided = await servers.provide(job)
        assert provided is not None
        assert provided[1].problem == "fds://theirs/m has no model: there is no bucket 'theirs'"
    finally:
        world.offload.close()


@pytest.mark.parametrize(
    ("uri", "framework"),
    [
        ("fds://cloudml/m/net.onnx", "python"),
        ("fds://cloudml/m/model.txt", "lightgbm"),
        ("fds://cloudml/m/notes.txt", None),
        ("fds://cloudml/m/net", None),
        ("fds://cloudml/m/absent.onnx", None),
        ("fds://cloudml/m/net.on", None),
    ],
)
def test_a_model_may_be_one_file(uri: str, framework: str | None) -> None:
    objects = MemoryObjectStore()
    objects.create_bucket("cloudml")
    for key in ("m/net.onnx", "m/model.txt", "m/notes.txt"):
        with objects.writer("cloudml", key) as writer:
            writer.write(b"x")
            writer.commit()
    required = requirements_of(objects, parse_object_uri("model_uri", uri))
    assert (required.framework if required else None) == framework
    message = nothing_at(objects, parse_object_uri("model_uri", "fds://cloudml/m/absent.onnx"))
    assert message.endswith(
        "nothing; beside it there is fds://cloudml/m/model.txt, fds://cloudml/m/net.onnx, "
        "fds://cloudml/m/notes.txt"
    )


def test_a_file_that_is_no_model_is_called_so() -> None:
    objects = MemoryObjectStore()
    objects.create_bucket("cloudml")
    for key in ("notes.txt", "m/notes.md"):
        with objects.writer("cloudml", key) as writer:
            writer.write(b"x")
            writer.commit()
    message = nothing_at(objects, parse_object_uri("model_uri", "fds://cloudml/notes.txt"))
    assert message.endswith("; there is a file, which is no model")
    message = nothing_at(objects, parse_object_uri("model_uri", "fds://cloudml/m/"))
    assert "fds://cloudml/m has no model: looked for a folder with a number" in message
    assert "such as fds://cloudml/m/1, that" in message
