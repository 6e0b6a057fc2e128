"""What cannot be right is refused with the right status, and with what would be right; and the
server goes on.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from cloud_ml.serving.protos import message
from support.serving import PREDICT, Running, call, predict, predict_request, tensor_request

INFER = "/inference.GRPCInferenceService/ModelInfer"
TAKES = "signature 'serving_default' takes (x: float32 [?])"


def predicting(change: Callable[[Any], object]) -> Any:
    """A good request, changed."""
    made = predict_request(x=[1.0, 2.0])
    change(made.inputs["x"])
    return made


def inferring(change: Callable[[Any], object]) -> Any:
    made = message("inference.ModelInferRequest")(model_name="linear")
    made.inputs.add(name="x", datatype="FP32", shape=[2])
    made.raw_input_contents.append(bytes(8))
    change(made)
    return made


def sized(*sizes: int) -> Callable[[Any], object]:
    """Says another shape."""

    def change(tensor: Any) -> None:
        del tensor.tensor_shape.dim[:]
        for size in sizes:
            tensor.tensor_shape.dim.add(size=size)

    return change


def one_value(tensor: Any) -> None:
    """A few bytes that say they are gigabytes."""
    tensor.ClearField("tensor_content")
    tensor.float_val.append(1.0)
    sized(1 << 28)(tensor)


GRPC = {
    "content that ends early": (
        PREDICT,
        predicting(lambda x: setattr(x, "tensor_content", b"1234567")),
    ),
    "a size that cannot be": (PREDICT, predicting(sized(1 << 62))),
    "sizes whose product cannot be": (PREDICT, predicting(sized(1 << 40, 1 << 40))),
    "a size below nothing": (PREDICT, predicting(sized(-2))),
    "one value for gigabytes": (PREDICT, predicting(one_value)),
    "no rank": (PREDICT, predicting(lambda x: setattr(x.tensor_shape, "unknown_rank", True))),
    "a type nobody knows": (PREDICT, predicting(lambda x: setattr(x, "dtype", 99))),
    "another type": (PREDICT, tensor_request("linear", "x", [1], "int64")),
    "values of another type": (
        PREDICT,
        predicting(lambda x: (x.ClearField("tensor_content"), x.int_val.append(1))),
    ),
    "one input too many": (PREDICT, predict_request(x=[1.0], z=[1.0])),
    "raw bytes that end early": (
        INFER,
        inferring(lambda made: made.raw_input_contents.__setitem__(0, b"1234567")),
    ),
    "raw bytes of nothing": (
        INFER,
        inferring(lambda made: made.raw_input_contents.append(b"1234")),
    ),
    "another shape than its bytes": (
        INFER,
        inferring(lambda made: made.inputs[0].shape.append(1 << 50)),
    ),
    "more than can be": (
        INFER,
        inferring(lambda made: made.inputs[0].shape.__setitem__(0, 1 << 60)),
    ),
    "a datatype nobody knows": (
        INFER,
        inferring(lambda made: setattr(made.inputs[0], "datatype", "FP7")),
    ),
    "the same input twice": (INFER, inferring(lambda made: made.inputs.append(made.inputs[0]))),
}


@pytest.mark.parametrize("what", GRPC)
def test_over_grpc(linear: Running, what: str) -> None:
    method, request = GRPC[what]
    with linear.channel() as channel:
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, method, request, "tensorflow.serving.PredictResponse")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert TAKES in caught.value.details()
        assert predict(channel, predict_request(x=[3.0]))["y"] == [16.0]


def _input(**other: object) -> bytes:
    return json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2], **other}]}
    ).encode()


V1, V2 = "/v1/models/linear:predict", "/v2/models/linear/infer"
HTTP = {
    "ragged rows": (V1, b'{"instances": [[1.0], [2.0, 3.0]]}'),
    "text for a number": (V1, b'{"instances": ["one"]}'),
    "nothing for a number": (V1, b'{"instances": [null]}'),
    "a rank too many": (V1, b'{"instances": [[1.0]]}'),
    "no rows": (V1, b'{"instances": []}'),
    "another input": (V1, b'{"inputs": {"z": [1.0]}}'),
    "an input too many": (V1, b'{"instances": [{"x": 1.0, "z": 1.0}]}'),
    "too few values": (V2, _input(data=[1])),
    "sizes that cannot be": (V2, _input(shape=[1 << 60])),
    "sizes below nothing": (V2, _input(shape=[-1])),
    "a type nobody knows": (V2, _input(datatype="FP7")),
    "another name": (V2, _input(name="z")),
}


@pytest.mark.parametrize("what", HTTP)
def test_over_http(linear: Running, what: str) -> None:
    path, body = HTTP[what]
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{linear.port}{path}", body, timeout=60)
    with caught.value as answer:
        assert answer.code == 400
        assert TAKES in json.load(answer)["error"]
    good = urllib.request.urlopen(
        f"http://127.0.0.1:{linear.port}{V1}", b'{"instances": [3.0]}', timeout=60
    )
    with good:
        assert json.load(good) == {"predictions": [16.0]}
