"""The Open Inference Protocol in JSON: lists that are left out of the document mean what they
mean inside it.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import ServingError
from cloud_ml.serving.oip import requests
from cloud_ml.serving.signatures import Signature, TensorSpec
from fuzz.harness import target

SIGNATURE = Signature(
    "s", (TensorSpec("x", dtypes.FLOAT, None), TensorSpec("k", dtypes.INT64, None)), ()
)


def _read(body: bytes, worth: int) -> Any:
    """Shapes and values of a request, or that it is refused."""
    with patch.object(requests, "WORTH", worth):
        try:
            shapes, values = requests.tensors(SIGNATURE, requests.split(body, None))
        except ServingError as error:
            return type(error)
    return shapes, [
        np.asarray(each).tobytes() if isinstance(each, np.ndarray) else bytes(each)
        for each in values
    ]


def _input(name: str, datatype: str, data: str, key: str = '"data"') -> str:
    return f'{{"name":"{name}","datatype":"{datatype}","shape":[2],{key}:{data}}}'


def _body(*inputs: str) -> str:
    return f'{{"inputs":[{",".join(inputs)}]}}'


_X, _K = _input("x", "FP32", "[1.5,2]"), _input("k", "INT64", "[3,4]")


@target(
    "serving.oip.requests",
    seeds=[_body(_X, _K), _body(_input("x", "FP32", "0", '"d\\u0061ta"'), _K), _body(_input("x", "FP32", "9", '"d\\u0061ta"'), _K), _body(_input("x", "FP32", "-1", '"d\\u0061ta"'), _K),
           _body(_input("x", "FP32", "0"), _K), _body(_input("x", "FP32", "[[1],[2]]"), _K), _body(_input("x", "FP32", '["]",2]'), _K), _body(_K, _X, '{"name":"data"}'),
           _body(_input("x", "FP32", '[1,2],"data":[3,4]'), _K), _body(_X, _K)[:-1] + ',"parameters":{"data":[1]},"id":"\\"data\\":[1]"}'],
    words=['"data"', '"d\\u0061ta"', ":", "[", "]", ",", "0", "-1", "7", '\\"data\\":[1]', '"name"', "null", "NaN", " ", '"', "{", "}"],
)  # fmt: skip
def inference_lists(data: bytes) -> None:
    """The same tensors, or refused with the same error, whether lists are read apart or not."""
    assert _read(data, 0) == _read(data, 1 << 30)
