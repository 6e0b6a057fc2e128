"""Configuration files as TensorFlow Serving reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.versions.model_config import (
    AllVersions,
    Latest,
    ModelConfig,
    Specific,
    parse_config,
)

FILE = """
model_config_list {
  config {
    name: 'resnet'
    base_path: '/models/resnet'
    model_platform: 'tensorflow'
    model_version_policy { specific { versions: 42 versions: 43 } }
    version_labels { key: 'stable' value: 42 }
  }
  config { name: 'bert' base_path: '/models/bert' model_version_policy { all {} } }
  config { name: 'mnist' base_path: '/models/mnist' model_version_policy { latest { num_versions: 3 } } }
  config { name: 'plain' base_path: 'file:///models/plain' }
}
"""


def test_a_file_of_tensorflow_serving_is_read() -> None:
    assert parse_config(FILE) == {
        "resnet": ModelConfig(
            "resnet", Path("/models/resnet"), Specific(frozenset({42, 43})), {"stable": 42}
        ),
        "bert": ModelConfig("bert", Path("/models/bert"), AllVersions()),
        "mnist": ModelConfig("mnist", Path("/models/mnist"), Latest(3)),
        "plain": ModelConfig("plain", Path("/models/plain"), Latest(1)),
    }


def one(fields: str) -> str:
    return f"model_config_list {{ config {{ {fields} }} }}"


TWICE = "name: 'a' base_path: '/' } config { name: 'a' base_path: '/'"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (one("nam: 'a'"), '1:30 : Message type "tensorflow.serving.ModelConfig" has no field'),
        ("", "no model_config_list"),
        (one("base_path: '/a'"), "'/a' has no name"),
        (one("name: 'a'"), "'a' has no base_path"),
        (one("name: 'a' base_path: 'x'"), "an absolute path is needed"),
        (one(TWICE), "'a' is configured twice"),
        (one("name: 'a' base_path: '/' model_version_policy { specific {} }"), "names no versions"),
    ],
)
def test_a_mistake_is_named(text: str, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_config(text)
    assert words in caught.value.message
