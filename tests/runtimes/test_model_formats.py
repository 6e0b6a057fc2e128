"""Models of every format, saved by their frameworks, answer through a real model server as they
answer themselves.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from cloud_ml.sdk.models.folders import files_of
from support.model_environments import environment
from support.serving import PREDICT, call, model_server, tensor_request

HERE = Path(__file__).parent / "models"
PACKAGES = {
    "tensorflow": ("tensorflow-cpu>=2.20", "tf2onnx>=1.16", "onnxruntime>=1.20"),
    "pytorch": ("torch==2.13.0",),
    "sklearn": ("scikit-learn>=1.7", "skops>=0.13"),
    "boosting": ("xgboost-cpu>=3", "lightgbm>=4.6", "pandas>=2"),
}
FORMATS = [
    ("tensorflow", "network"),
    ("tensorflow", "table"),
    ("tensorflow", "keras"),
    ("tensorflow", "lite"),
    ("pytorch", "exported"),
    ("pytorch", "scripted"),
    ("sklearn", "skops"),
    ("sklearn", "pickled"),
    ("boosting", "xgboost"),
    ("boosting", "lightgbm"),
]

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(1500)]


@cache
def saved(framework: str, folder: Path) -> dict[str, Any]:
    """What the framework saved below the folder, and answers itself."""
    made = subprocess.run(
        [environment(*PACKAGES[framework]), HERE / f"save_{framework}.py", folder],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    examples: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return examples


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@contextlib.contextmanager
def served(framework: str, name: str, models: Path) -> Iterator[grpc.Channel]:
    flags = [
        "--model_name",
        name,
        "--model_base_path",
        str(models / framework / name),
        "--allow_models_that_run_code",
    ]
    flags += ["--conversion_cache", str(models / "converted")]
    with (
        model_server(*flags, python=environment(*PACKAGES[framework])) as running,
        running.channel() as channel,
    ):
        yield channel


@pytest.mark.parametrize(("framework", "name"), FORMATS)
def test_it_answers_as_its_framework_does(models: Path, framework: str, name: str) -> None:
    example = saved(framework, models / framework)[name]
    assert files_of(models / framework / name), "the command line sends it"
    with served(framework, name, models) as channel:
        for rows in (len(example["x"]), 1):
            request = tensor_request(
                name,
                example["input"],
                example["x"][:rows],
                example.get("dtype", "float32"),
                example.get("signature", ""),
            )
            answer = call(
                channel, PREDICT, request, "tensorflow.serving.PredictResponse", timeout=60
            )
            tensor = (
                answer.outputs[example["output"]]
                if example["output"]
                else next(iter(answer.outputs.values()))
            )
            values = np.array(list(tensor.float_val) + list(tensor.double_val))
            np.testing.assert_allclose(values, np.ravel(example["y"][:rows]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("output", ["probabilities", "predict_proba"])
def test_a_classifier_of_scikit_learn_gives_probabilities_where_they_are_named(
    models: Path, output: str
) -> None:
    example = saved("sklearn", models / "sklearn")["pickled"]
    with served("sklearn", "pickled", models) as channel:
        request = tensor_request("pickled", "x", example["x"], "float64")
        usual = call(channel, PREDICT, request, "tensorflow.serving.PredictResponse", timeout=60)
        assert list(usual.outputs) == ["label"]
        request.output_filter.extend([output, "label"])
        answer = call(channel, PREDICT, request, "tensorflow.serving.PredictResponse", timeout=60)
        assert sorted(answer.outputs) == sorted([output, "label"])
        np.testing.assert_allclose(
            answer.outputs[output].double_val, np.ravel(example["y"]), rtol=1e-9
        )
        assert answer.outputs["label"] == usual.outputs["label"]


def test_lightgbm_takes_the_categories_of_the_table_that_it_was_trained_with(models: Path) -> None:
    example = saved("boosting", models / "boosting")["categories"]
    flags = ["--model_name", "categories", "--rest_api_port", "0"]
    flags += ["--model_base_path", str(models / "boosting" / "categories")]
    with model_server(*flags, python=environment(*PACKAGES["boosting"])) as running:
        request = urllib.request.Request(
            f"http://127.0.0.1:{running.ports[-1]}/v1/models/categories:predict",
            json.dumps({"instances": example["instances"]}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["predictions"] == pytest.approx(example["y"])
