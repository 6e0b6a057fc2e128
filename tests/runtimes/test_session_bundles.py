"""Exports of TensorFlow 1 before SavedModel, written by its own exporter, answer here as they
answered there.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.model_environments import environment, older_environment
from support.server import serving
from support.serving import PREDICT, Running, call, model_server, tensor_request

SAVE = Path(__file__).parent / "models" / "save_session_bundle.py"
TENSORFLOW_1 = ("tensorflow==1.15.5", "protobuf<3.21", "grpcio<1.50", "numpy<1.20")
PACKAGES = ("tensorflow-cpu>=2.20", "tf2onnx>=1.16", "onnxruntime>=1.20")

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(900)]
SavedModels = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def saved_models(models: Path) -> SavedModels:
    """What TensorFlow 1 wrote below ``models``, and answers itself."""
    python = older_environment("3.7", *TENSORFLOW_1)
    made = subprocess.run(
        [python, SAVE, models], capture_output=True, text=True, timeout=300, check=False
    )
    assert made.returncode == 0, made.stderr
    answers: SavedModels = json.loads(made.stdout.splitlines()[-1])
    return answers


@pytest.fixture(scope="module")
def served(models: Path, saved_models: SavedModels) -> Iterator[Running]:
    config = models / "models.config"
    each = "\n".join(
        f"config {{ name: '{name}' base_path: '{models / name}' }}" for name in saved_models
    )
    config.write_text(f"model_config_list {{ {each} }}")
    flags = ["--model_config_file", str(config), "--conversion_cache", str(models / "converted")]
    with model_server(*flags, python=environment(*PACKAGES)) as running:
        yield running


def rest(served: Running, path: str, document: object = None) -> Any:
    data = None if document is None else json.dumps(document).encode()
    with urllib.request.urlopen(
        f"http://127.0.0.1:{served.port}/v1/models/{path}", data, timeout=60
    ) as answer:
        return json.load(answer)


@pytest.mark.parametrize("name", ["named", "sharded", "old", "classified"])
def test_checkpoints_of_every_kind(served: Running, saved_models: SavedModels, name: str) -> None:
    one = saved_models[name]
    with served.channel() as channel:
        request = tensor_request(name, one["input"], one["x"], "float32")
        answer = call(channel, PREDICT, request, "tensorflow.serving.PredictResponse", timeout=60)
    assert set(answer.outputs) == {one["output"]}
    np.testing.assert_allclose(
        answer.outputs[one["output"]].float_val, np.ravel(one["y"]), rtol=1e-5
    )
    np.testing.assert_allclose(
        rest(served, f"{name}:predict", {"instances": one["x"]})["predictions"], one["y"], 1e-5
    )


def test_named_halves_beside_a_default_signature(
    served: Running, saved_models: SavedModels
) -> None:
    signatures = rest(served, "classified/metadata")["metadata"]["signature_def"]["signature_def"]
    methods = {name: each["method_name"] for name, each in signatures.items()}
    assert methods == {
        "serving_default": "tensorflow/serving/classify",
        "serving_default_from_named": "tensorflow/serving/predict",
    }
    request = {
        "signature_name": "serving_default_from_named",
        "inputs": {"x": saved_models["classified"]["x"]},
    }
    np.testing.assert_allclose(
        rest(served, "classified:predict", request)["outputs"],
        saved_models["classified"]["y"],
        1e-5,
    )


def test_the_words_of_an_asset_where_it_lies_now(
    served: Running, saved_models: SavedModels
) -> None:
    one = saved_models["words"]
    assert rest(served, "words:predict", {"instances": one["x"]}) == {"predictions": one["y"]}


def test_what_is_no_bundle_is_told(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "export.meta").write_bytes(b"\xff\xff")
    flags = [
        "--model_name",
        "m",
        "--model_base_path",
        str(tmp_path),
        "--conversion_cache",
        str(tmp_path / "converted"),
    ]
    with model_server(*flags, python=environment(*PACKAGES)) as running:
        state = rest(running, "m")["model_version_status"][0]
    assert (state["state"], "export.meta cannot be read" in state["status"]["error_message"]) == (
        "END",
        True,
    )


def test_one_is_a_model_service_like_any_other(
    models: Path, saved_models: SavedModels, tmp_path: Path
) -> None:
    one = saved_models["named"]
    with serving(tmp_path) as server:
        server.cli("framework", "prepare", "tensorflow", timeout_s=600).good()
        words = ("deploy", "bundle", "v1", str(models / "named"), "-W")
        server.cli("models", *words, timeout_s=300).good()
        (server.user_home / "data.json").write_text(json.dumps({one["input"]: one["x"]}))
        for more in ((), ("--http",)):
            answer = (
                server.cli("models", "predict", "bundle", "v1", "-d", "./data.json", *more)
                .good()
                .json()
            )
            assert list(answer) == [one["output"]]
            np.testing.assert_allclose(answer[one["output"]], one["y"], 1e-5)
        assert "float32 [?, 2]" in server.cli("models", "describe", "bundle", "v1").good().out
