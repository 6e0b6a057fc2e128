"""Requests as each protocol writes them, and the numbers out of the answers."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloud_ml.serving.protos import message
from serving.models import Array

TFS, OIP, V1, V2 = "TensorFlow Serving gRPC", "Open Inference gRPC", "v1 JSON", "v2 JSON"


@dataclass(frozen=True)
class Question:
    """One request, as bytes. ``read`` gives the values of an answer's body."""

    path: str
    body: bytes
    read: Callable[[bytes], Array]
    grpc: bool

    @property
    def fields(self) -> list[str]:
        """Lines of its head."""
        return (
            ["content-type: application/grpc", "te: trailers"]
            if self.grpc
            else ["content-type: application/json"]
        )

    def ask(self, port: int) -> bytes:
        """The body of an answer, by a client that is not the one that measures."""
        if not self.grpc:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{self.path}",
                self.body,
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                return bytes(answer.read())
        import grpc

        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            made = channel.unary_unary(self.path)(self.body[5:], timeout=30)
        return b"\0" + len(made).to_bytes(4, "big") + made


def question(way: str, model: str, rows: Array, path: str = "") -> Question:
    """Ask for a prediction; ``path`` where the server has one of its own for v1 JSON."""
    if way == TFS:
        return _grpc(
            "/tensorflow.serving.PredictionService/Predict", _predict(model, rows), _predicted
        )
    if way == OIP:
        return _grpc("/inference.GRPCInferenceService/ModelInfer", _infer(model, rows), _inferred)
    if way == V1:
        body = json.dumps({"instances": rows.tolist()}).encode()
        return Question(path or f"/v1/models/{model}:predict", body, _listed, grpc=False)
    data = [round(float(value), 4) for value in rows.ravel()]
    tensor = {"name": "x", "datatype": "FP32", "shape": rows.shape, "data": data}
    return Question(
        f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode(), _output, grpc=False
    )


def _grpc(path: str, made: Any, read: Callable[[bytes], Array]) -> Question:
    data = made.SerializeToString()
    return Question(path, b"\0" + len(data).to_bytes(4, "big") + data, read, grpc=True)


def _predict(model: str, rows: Array) -> Any:
    made = message("tensorflow.serving.PredictRequest")()
    made.model_spec.name = model
    tensor = made.inputs["x"]
    tensor.dtype = 1
    for size in rows.shape:
        tensor.tensor_shape.dim.add(size=size)
    if rows.size > 1:  # as tf.make_tensor_proto does
        tensor.tensor_content = rows.tobytes()
    else:
        tensor.float_val.extend(rows.ravel().tolist())
    return made


def _predicted(body: bytes) -> Array:
    (tensor,) = message("tensorflow.serving.PredictResponse").FromString(body[5:]).outputs.values()
    return np.asarray(tensor.float_val, np.float32)


def _infer(model: str, rows: Array) -> Any:
    made = message("inference.ModelInferRequest")(model_name=model)
    made.inputs.add(name="x", datatype="FP32", shape=rows.shape)
    made.raw_input_contents.append(rows.tobytes())
    return made


def _inferred(body: bytes) -> Array:
    made = message("inference.ModelInferResponse").FromString(body[5:])
    if made.raw_output_contents:
        return np.frombuffer(made.raw_output_contents[0], np.float32)
    return np.asarray(made.outputs[0].contents.fp32_contents, np.float32)


def _listed(body: bytes) -> Array:
    return np.asarray(json.loads(body)["predictions"], np.float32).ravel()


def _output(body: bytes) -> Array:
    return np.asarray(json.loads(body)["outputs"][0]["data"], np.float32).ravel()
