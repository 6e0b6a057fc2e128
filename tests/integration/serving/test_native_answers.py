"""A differential test: what the server answers under load is what the runtime answers alone.

Random models of known operators, random shapes, rows and types, callers at once, every protocol.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from integration.serving.test_batching import config, infer
from integration.serving.test_rest import ask
from support.serving import PREDICT, Running, call, model_server, save, tensor_request

TYPES = {
    TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.INT32: "int32",
    TensorProto.INT64: "int64", TensorProto.FLOAT16: "float16",
}  # fmt: skip
CALLS = 60
SEEDS = range(20)

Array = np.ndarray[Any, Any]


def random_model(random: np.random.Generator) -> onnx.ModelProto:
    """Some operators one after the other; a few of them mix rows."""
    kind = int(random.choice(list(TYPES)))
    tail = [int(size) for size in random.integers(1, 5, int(random.integers(0, 3)))]
    nodes, weights, last = [], [], "x"
    for step in range(int(random.integers(1, 6))):
        made = f"t{step}"
        choice = int(random.integers(0, 6))
        if choice == 0:
            value = random.integers(1, 4, tail[-1:] or []).astype(TYPES[kind])
            weights.append(numpy_helper.from_array(np.asarray(value), f"w{step}"))
            nodes.append(helper.make_node("Mul", [last, f"w{step}"], [made]))
        elif choice == 1:
            nodes.append(helper.make_node("Add", [last, "x"], [made]))
        elif choice == 2 and kind in (TensorProto.FLOAT, TensorProto.DOUBLE):
            nodes.append(helper.make_node("Softmax", [last], [made], axis=-1))
        elif choice == 3 and kind in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32):
            nodes.append(helper.make_node("ReduceMax", [last], [f"m{step}"], axes=[0], keepdims=1))
            nodes.append(helper.make_node("Sub", [last, f"m{step}"], [made]))
        elif choice == 4 and len(tail) == 2 and tail[0] == tail[1]:
            nodes.append(helper.make_node("Transpose", [last], [made], perm=[0, 2, 1]))
        else:
            nodes.append(helper.make_node("Identity", [last], [made]))
        last = made
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    inputs, outputs = [
        [helper.make_tensor_value_info(name, kind, ["rows", *tail])] for name in "xy"
    ]
    graph = helper.make_graph(nodes, "random", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def by_grpc(running: Running, channel: grpc.Channel, name: str, x: Array) -> Array:
    answer = call(
        channel,
        PREDICT,
        tensor_request(name, "x", x, x.dtype.name),
        "tensorflow.serving.PredictResponse",
    )
    tensor = answer.outputs["y"]
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if x.dtype == np.float16:
        return np.array(list(tensor.half_val), np.uint16).view(np.float16).reshape(shape)
    field = {
        "float32": "float_val",
        "float64": "double_val",
        "int32": "int_val",
        "int64": "int64_val",
    }[x.dtype.name]
    return np.array(list(getattr(tensor, field)), x.dtype).reshape(shape)


def by_oip(running: Running, channel: grpc.Channel, name: str, x: Array) -> Array:
    made: Array = infer(channel, name, {"x": x})
    return made


def by_columns(running: Running, channel: grpc.Channel, name: str, x: Array) -> Array:
    status, document = ask(running, "POST", f"/v1/models/{name}:predict", {"inputs": x.tolist()})
    assert status == 200, document
    return np.array(document["outputs"], x.dtype)


def by_v2(running: Running, channel: grpc.Channel, name: str, x: Array) -> Array:
    datatype = {
        "float32": "FP32",
        "float64": "FP64",
        "int32": "INT32",
        "int64": "INT64",
        "float16": "FP16",
    }
    tensor = {
        "name": "x",
        "shape": x.shape,
        "datatype": datatype[x.dtype.name],
        "data": x.ravel().tolist(),
    }
    status, document = ask(
        running, "POST", f"/v2/models/{name}/infer", json.dumps({"inputs": [tensor]}).encode()
    )
    assert status == 200, document
    return np.array(document["outputs"][0]["data"], x.dtype).reshape(
        document["outputs"][0]["shape"]
    )


WAYS: list[Callable[[Running, grpc.Channel, str, Array], Array]] = [
    by_grpc,
    by_oip,
    by_columns,
    by_v2,
]


def test_the_server_answers_under_load_what_the_runtime_answers_alone(tmp_path: Path) -> None:
    sessions = {}
    for seed in SEEDS:
        made = random_model(np.random.default_rng(seed))
        save(tmp_path / f"m{seed}" / "1", made)
        sessions[f"m{seed}"] = onnxruntime.InferenceSession(
            made.SerializeToString(), providers=["CPUExecutionProvider"]
        )
    requests: list[tuple[int, str, Array]] = []
    random = np.random.default_rng(99)
    for number in range(CALLS * len(sessions)):
        name = f"m{random.integers(len(sessions))}"
        spec = sessions[name].get_inputs()[0]
        kind = {"float": "float32", "double": "float64"}.get(spec.type[7:-1], spec.type[7:-1])
        shape = [int(random.integers(1, 9)), *spec.shape[1:]]
        x = (
            random.integers(-4, 5, shape)
            if kind.startswith("int")
            else random.standard_normal(shape).round(3)
        )
        requests.append((number % len(WAYS), name, np.asarray(x).astype(kind)))
    flags = ["--model_config_file", config(tmp_path, *sessions)]
    with (
        model_server(*flags) as running,
        running.channel() as channel,
        ThreadPoolExecutor(16) as callers,
    ):
        answers = list(
            callers.map(lambda each: WAYS[each[0]](running, channel, each[1], each[2]), requests)
        )
        batched = {name: decisions(running, name) for name in sessions}
    assert len(set(batched.values())) == 2, "some of the models mix rows, and some do not"
    for (way, name, x), answer in zip(requests, answers, strict=True):
        alone = sessions[name].run(["y"], {"x": x})[0]
        assert answer.shape == alone.shape, (WAYS[way].__name__, name)
        tolerance = 0.0 if alone.dtype.kind == "i" else 16 * float(np.finfo(alone.dtype).eps)
        np.testing.assert_allclose(
            answer, alone, rtol=tolerance, atol=tolerance, err_msg=f"{WAYS[way].__name__} {name}"
        )


def decisions(running: Running, name: str) -> bool:
    _, document = ask(running, "GET", f"/v1/models/{name}/metadata")
    return bool(document["metadata"]["batching"]["serving_default"]["enabled"])


pytestmark = pytest.mark.xdist_group("native")
