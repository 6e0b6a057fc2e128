"""Which framework a model needs, by the files of its newest version."""

from __future__ import annotations

import pytest

from cloud_ml.controller.model_server import FRAMEWORKS, framework_of, nothing_at
from cloud_ml.models.common import parse_object_uri
from cloud_ml.objects.memory import MemoryObjectStore
from cloud_ml.sdk.model_folders import MODEL_FILES


@pytest.mark.parametrize(
    ("keys", "framework"),
    [
        (["m/1/model.onnx"], "python"),
        (["m/00000001/saved_model.pb", "m/00000001/export.meta"], "tensorflow"),
        (["m/2/model.onnx", "m/10/saved_model.pb"], "tensorflow"),
        (["m/2/model.onnx", "m/10/notes.txt"], "python"),
        (["m/best/model.onnx"], None),
        (["m/model.onnx"], None),
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
    assert framework_of(objects, parse_object_uri("model_uri", "fds://cloudml/m")) == framework


def test_what_lies_there_instead_is_told() -> None:
    objects = MemoryObjectStore()
    objects.create_bucket("cloudml")
    for number in range(7):
        with objects.writer("cloudml", f"m/{number}/notes.txt") as writer:
            writer.write(b"x")
            writer.commit()
    told = nothing_at(objects, parse_object_uri("model_uri", "fds://cloudml/m"))
    assert told.startswith("fds://cloudml/m has no model: looked for a folder with a number for its name, such as")
    assert "such as fds://cloudml/m/1, that holds one of saved_model.pb, export.meta, model.keras" in told
    assert told.endswith("there is 0/, 1/, 2/, 3/, 4/ …")


def test_the_sdk_knows_the_same_files() -> None:
    assert set(MODEL_FILES) == set(FRAMEWORKS)
