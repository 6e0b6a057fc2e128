"""No caller gets a value of another caller, signature or row, whichever framework runs the model.

The answers that are expected are those of the framework itself, in a process without a server.
"""

from __future__ import annotations

import json
import random
import subprocess
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from runtimes.test_model_formats import HERE, PACKAGES
from support.model_environments import environment
from support.server import eventually
from support.serving import PREDICT, Running, message, model_server, tensor_request

MODELS = {
    "pytorch": ["network", "centred", "scripted"],
    "sklearn": ["skops", "pickled", "scaled"],
    "boosting": ["xgboost", "lightgbm"],
    "tensorflow": [
        "graphs",
        "words",
        "layers_keras",
        "layers_lite",
        "layers_centred_keras",
        "layers_centred_lite",
    ],
}
ROUNDS = 6
CHANNELS = 8
LOADING_S = 300.0

pytestmark = [pytest.mark.runtimes, pytest.mark.timeout(1500)]


@cache
def saved(framework: str, folder: Path) -> dict[str, Any]:
    """What the framework saved below the folder, and answers itself."""
    command = [environment(*PACKAGES[framework]), HERE / f"save_callers_{framework}.py", folder]
    made = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert made.returncode == 0, made.stderr
    models_by_name: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return models_by_name


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("framework", MODELS)
def test_every_caller_gets_what_the_framework_answers_to_it_alone(
    models: Path, framework: str
) -> None:
    models_by_name = saved(framework, models / framework)
    assert list(models_by_name) == MODELS[framework]
    config = models / f"{framework}.config"
    each = "\n".join(
        f"config {{ name: '{name}' base_path: '{models / framework / name}' }}"
        for name in models_by_name
    )
    config.write_text(f"model_config_list {{ {each} }}")
    flags = ["--model_config_file", str(config), "--allow_models_that_run_code"]
    flags += ["--conversion_cache", str(models / "converted")]
    with model_server(*flags, python=environment(*PACKAGES[framework])) as running:
        for name, one in models_by_name.items():
            merged = eventually(
                lambda name=name: _merged(running, name), f"{name} is loaded", limit_s=LOADING_S
            )
            assert set(merged) == {*one["merged"], ""}, name
        wrong = _wrong_answers(running, models_by_name)
    assert wrong == []


def _merged(running: Running, name: str) -> list[str] | None:
    """The signatures of a model whose calls run together, and an empty name; None while it is
    not loaded.
    """
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{running.port}/v1/models/{name}/metadata", timeout=60
        ) as answer:
            found = json.load(answer)["metadata"]["batching"]
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return None
        raise
    return [*(signature for signature, decision in found.items() if decision["enabled"]), ""]


def _wrong_answers(running: Running, models_by_name: dict[str, Any]) -> list[str]:
    """Ask for everything at once, again and again, in another order each time."""
    every = [(name, one, call) for name, one in models_by_name.items() for call in one["calls"]] * 2
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [
        grpc.insecure_channel(f"127.0.0.1:{running.port}", options=options) for _ in range(CHANNELS)
    ]
    read = message("tensorflow.serving.PredictResponse").FromString
    stubs = [
        channel.unary_unary(
            PREDICT,
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=read,
        )
        for channel in channels
    ]
    wrong = []
    for turn in range(ROUNDS):
        random.Random(turn).shuffle(every)
        futures = []
        for place, (name, one, call) in enumerate(every):
            request = tensor_request(name, one["input"], call["x"], one["dtype"], call["signature"])
            futures.append(stubs[place % CHANNELS].future(request, timeout=120))
        for (name, _, call), answer in zip(every, futures, strict=True):
            if not _equal(answer.result(), call):
                wrong.append(f"{name} {call['signature']}: {call['x']}")
    for channel in channels:
        channel.close()
    return wrong


def _equal(answer: Any, call: dict[str, Any]) -> bool:
    tensor = (
        answer.outputs[call["output"]] if call["output"] else next(iter(answer.outputs.values()))
    )
    found = [*tensor.float_val, *tensor.double_val, *tensor.int64_val]
    return len(found) == np.size(call["y"]) and np.allclose(
        found, np.ravel(call["y"]), rtol=1e-4, atol=1e-5
    )
