from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs.json_answers import rows, text
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import Unsupported
from cloud_ml.serving.signatures import TensorSpec


def write(array: Any, dtype: DType, name: str = "y") -> str:
    return text(np.asarray(array, dtype.numpy), TensorSpec(name, dtype, None)).decode()


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        ([0.1, 16, 1 / 3], dtypes.FLOAT, "[0.1,16.0,0.33333334]"),
        ([[0.1], [1e-7]], dtypes.DOUBLE, "[[0.1],[1e-7]]"),
        ([np.nan, 1, np.inf, -np.inf], dtypes.FLOAT, "[NaN,1.0,Infinity,-Infinity]"),
        (np.nan, dtypes.FLOAT, "NaN"),
        (2.5, dtypes.FLOAT, "2.5"),
        ([], dtypes.FLOAT, "[]"),
        ([0.5, np.inf], dtypes.HALF, "[0.5,Infinity]"),
        ([0.5, 2], dtypes.BFLOAT16, "[0.5,2.0]"),
        ([[True], [False]], dtypes.BOOL, "[[true],[false]]"),
        ([-(2**63)], dtypes.INT64, "[-9223372036854775808]"),
        ([2**64 - 1], dtypes.UINT64, "[18446744073709551615]"),
        ([3], dtypes.INT8, "[3]"),
        ([b"a", b'"'], dtypes.STRING, '["a","\\""]'),
        ([[b"null"]], dtypes.STRING, '[["null"]]'),
        ([b"\xff"], dtypes.STRING, '[{"b64":"/w=="}]'),
    ],
)
def test_tensors_as_json(array: Any, dtype: DType, expected: str) -> None:
    assert write(array, dtype) == expected


def test_bytes_are_told_by_their_name() -> None:
    assert write([b"a"], dtypes.STRING, "image_bytes") == '[{"b64":"YQ=="}]'


def test_any_layout_of_an_array() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1)
    assert json.loads(text(array, TensorSpec("y", dtypes.FLOAT, None))) == array.tolist()
    half = array.astype(ml_dtypes.bfloat16)
    assert json.loads(text(half, TensorSpec("y", dtypes.BFLOAT16, None))) == array.tolist()


def test_complex_numbers_have_no_form() -> None:
    with pytest.raises(Unsupported):
        write([1j], dtypes.COMPLEX64)


@pytest.mark.parametrize(
    "shape",
    [(3,), (1,), (3, 1), (2, 3), (1, 4), (3, 2, 2), (2, 1, 3, 1), (0,), (0, 3), (3, 0), (2, 0, 2)],
)
@pytest.mark.parametrize(
    "dtype", [dtypes.FLOAT, dtypes.INT64, dtypes.BOOL, dtypes.STRING, dtypes.BFLOAT16]
)
def test_rows_that_are_written_together_are_those_that_are_written_alone(
    shape: tuple[int, ...], dtype: DType
) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype.numpy)
    if dtype is dtypes.FLOAT and array.size > 1:
        array.ravel()[1:] = [np.nan, np.inf, -np.inf, 1.5][: array.size - 1] + [0.0] * max(
            0, array.size - 5
        )
    spec = TensorSpec("y", dtype, None)
    assert rows(array, spec) == [
        text(array[place], spec) if array.ndim > 1 else text(array[place : place + 1], spec)[1:-1]
        for place in range(len(array))
    ]
