"""Model servers for tests: real processes, small ONNX models, clients by grpcio."""

from __future__ import annotations

import collections
import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
from onnx import TensorProto, helper

from cloud_ml.serving.dtypes import BY_NAME
from cloud_ml.serving.protos import message

SLIDES_DATA = (
    '{"keys_dtype": "int32", "keys": [[1], [2]], "X_dtype": "float32", "X": [[10.0], [30.0]]}'
)
"""The data file of the slides."""
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def save_linear(folder: Path, slope: float = 2.0, intercept: float = 10.0) -> Path:
    """A version that knows ``y = slope * x + intercept``, for any number of rows."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["wx"]),
        helper.make_node("Add", ["wx", "b"], ["y"]),
    ]
    numbers = [
        helper.make_tensor(name, TensorProto.FLOAT, [], [value])
        for name, value in (("w", slope), ("b", intercept))
    ]
    inputs, outputs = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows"])] for name in "xy"
    ]
    graph = helper.make_graph(nodes, "linear", inputs, outputs, numbers)
    return save(
        folder, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    )


def slides_model(folder: Path) -> Path:
    """The linear model of the slides: ``keys`` come back beside ``predict``, which is 2x + 10."""
    nodes = [
        helper.make_node("Mul", ["X", "w"], ["wx"]),
        helper.make_node("Add", ["wx", "b"], ["predict"]),
        helper.make_node("Identity", ["keys"], ["keys_out"]),
    ]
    numbers = [
        helper.make_tensor(name, TensorProto.FLOAT, [], [value])
        for name, value in (("w", 2.0), ("b", 10.0))
    ]
    inputs = [
        helper.make_tensor_value_info("keys", TensorProto.INT32, ["rows", 1]),
        helper.make_tensor_value_info("X", TensorProto.FLOAT, ["rows", 1]),
    ]
    outputs = [
        helper.make_tensor_value_info("keys_out", TensorProto.INT32, ["rows", 1]),
        helper.make_tensor_value_info("predict", TensorProto.FLOAT, ["rows", 1]),
    ]
    graph = helper.make_graph(nodes, "linear", inputs, outputs, numbers)
    return save(
        folder, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    )


def save(folder: Path, model: onnx.ModelProto) -> Path:
    """Write a model as a version."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    return folder


@dataclass
class Running:
    """A model server that listens. ``ports`` are all of its own, in the order of its flags."""

    process: subprocess.Popen[str]
    port: int
    ports: Sequence[int] = ()

    @contextlib.contextmanager
    def channel(self, **options: Any) -> Iterator[grpc.Channel]:
        """A channel of grpcio to it."""
        with grpc.insecure_channel(
            f"127.0.0.1:{self.port}", options=list(options.items())
        ) as channel:
            yield channel


@contextlib.contextmanager
def model_server(*flags: str, python: Path | str = sys.executable) -> Iterator[Running]:
    """Starts ``cloudml-serve`` on a free port; it must end well when it is told to."""
    command = [str(python), "-m", "cloud_ml.serving", "--port", "0", *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        rest = threading.Thread(
            target=collections.deque, args=(process.stderr, 0)
        )  # a full pipe would stop it
        try:
            seen: list[str] = []
            ports: list[int] = []
            count = 2 if "--rest_api_port" in flags else 1
            for line in process.stderr:
                seen.append(line)
                ports += [int(port) for port in re.findall(r"listening on \S+:(\d+)", line)]
                if len(ports) == count:
                    rest.start()
                    yield Running(process, ports[0], ports)
                    break
            else:
                raise AssertionError("it did not start:\n" + "".join(seen))
        finally:
            process.terminate()
            process.wait(timeout=60)
            if rest.ident is not None:
                rest.join(60)
    assert process.returncode == 0


def call(channel: grpc.Channel, method: str, request: Any, answer: str, **options: Any) -> Any:
    """A unary call with our own messages."""
    stub = channel.unary_unary(
        method,
        request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=message(answer).FromString,
    )
    return stub(request, **({"timeout": 60} | options))


def predict_request(
    name: str = "linear", *, outputs: Sequence[str] = (), signature: str = "", **inputs: Any
) -> Any:
    """A ``PredictRequest`` with float inputs, as ``tf.make_tensor_proto`` makes them."""
    made = message("tensorflow.serving.PredictRequest")()
    made.model_spec.name, made.model_spec.signature_name = name, signature
    made.output_filter.extend(outputs)
    for key, value in inputs.items():
        array = np.asarray(value, np.float32)
        tensor = made.inputs[key]
        tensor.dtype = 1
        for size in array.shape:
            tensor.tensor_shape.dim.add(size=size)
        if array.size > 1:
            tensor.tensor_content = array.tobytes()
        else:
            tensor.float_val.extend(array.ravel().tolist())
    return made


def tensor_request(name: str, key: str, values: Any, dtype: str, signature: str = "") -> Any:
    """A ``PredictRequest`` with one input of any type of numbers."""
    made = message("tensorflow.serving.PredictRequest")()
    made.model_spec.name, made.model_spec.signature_name = name, signature
    array, tensor = np.asarray(values, dtype), made.inputs[key]
    tensor.dtype, tensor.tensor_content = BY_NAME[dtype].number, array.tobytes()
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    return made


def predict(channel: grpc.Channel, request: Any, **options: Any) -> dict[str, list[float]]:
    """The values of a prediction, by output."""
    answer = call(channel, PREDICT, request, "tensorflow.serving.PredictResponse", **options)
    return {key: list(tensor.float_val) for key, tensor in answer.outputs.items()}
