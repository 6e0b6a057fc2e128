from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs.json_documents import document, shape_values, tensor
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import BadRequest, ServingError
from cloud_ml.serving.signatures import Signature, TensorSpec

DEEP = "[" * 900 + "1" + "]" * 900


def read(dtype: DType, value: Any) -> np.ndarray[Any, Any]:
    spec = TensorSpec("x", dtype, None)
    signature = Signature("s", (spec,), ())
    shape, given = tensor(
        orjson.loads(value) if isinstance(value, str) else value, spec, signature, "inputs"
    )
    given = shape_values(shape, given, dtype)
    return (
        given if isinstance(given, np.ndarray) else np.frombuffer(given, dtype.numpy).reshape(shape)
    )


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (dtypes.FLOAT, [[1, 2.5], [-3.25, 4e10]]),
        (dtypes.DOUBLE, [1, 0.1]),
        (dtypes.HALF, [1, 0.5]),
        (dtypes.BFLOAT16, [1, 0.5]),
        (dtypes.INT8, [-128, 127]),
        (dtypes.UINT8, [[[0]], [[255]]]),
        (dtypes.INT16, [-(2**15), 2**15 - 1]),
        (dtypes.UINT16, [2**16 - 1]),
        (dtypes.INT32, [-(2**31), 2**31 - 1]),
        (dtypes.UINT32, [2**32 - 1]),
        (dtypes.INT64, [-(2**63), 2**63 - 1]),
        (dtypes.UINT64, [2**64 - 1]),
        (dtypes.BOOL, [[True, False]]),
        (dtypes.FLOAT, 3),
        (dtypes.FLOAT, []),
        (dtypes.FLOAT, [[], []]),
    ],
)
def test_values_of_every_type(dtype: DType, value: Any) -> None:
    made = read(dtype, value)
    expected = np.array(value, dtype.numpy)
    assert made.shape == expected.shape
    np.testing.assert_array_equal(made, expected)


def test_strings_and_bytes() -> None:
    made = read(dtypes.STRING, [["é", {"b64": "AP8="}], [{"b64": "AP8"}, {"b64": "_-8="}]])
    assert made.tolist() == [["é".encode(), b"\x00\xff"], [b"\x00\xff", b"\xff\xef"]]


def test_a_number_that_is_too_large_for_its_type_is_infinity() -> None:
    assert read(dtypes.FLOAT, [1e300, -1e300]).tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        (dtypes.FLOAT, [[1, 2], [3]], "inputs[1] has shape [1], inputs[0] has shape [2]"),
        (dtypes.FLOAT, [[1, 2], 3], "inputs[1] is 3, inputs[0] has shape [2]"),
        (dtypes.FLOAT, [1, [2]], "inputs[1] has shape [1], inputs[0] is 1"),
        (
            dtypes.FLOAT,
            [[[1], [2]], [[1], [2, 3]]],
            "inputs[1][1] has shape [2], inputs[1][0] has shape [1]",
        ),
        (
            dtypes.FLOAT,
            [[[1, 2]], [[1], [2]]],
            "inputs[1] has shape [2, 1], inputs[0] has shape [1, 2]",
        ),
        (dtypes.FLOAT, [[], [1]], "inputs[1] has shape [1], inputs[0] has shape [0]"),
        (dtypes.FLOAT, DEEP, "deeper than 32"),
        (dtypes.FLOAT, f"[1, {DEEP}]", "deeper than 32"),
        (dtypes.FLOAT, ["1"], "a string \"1\", and 'x' takes float32"),
        (dtypes.FLOAT, [True], "a truth value true"),
        (dtypes.FLOAT, [None], "null"),
        (dtypes.FLOAT, [{"b64": ""}], "an object"),
        (dtypes.FLOAT, [{"age": None, "on": True}], 'an object {"age": null, "on": true}, and'),
        (dtypes.FLOAT, ["long " * 20], 'a string "' + ("long " * 10)[:49] + "…, and"),
        (dtypes.FLOAT, [{"a": "long " * 20}], 'an object {"a": "' + ("long " * 10)[:43] + "…, and"),
        (dtypes.INT32, [1, 1.0], "a number 1.0, and 'x' takes int32"),
        (dtypes.INT32, [2**31], "no int32"),
        (dtypes.UINT8, [-1], "no uint8"),
        (dtypes.UINT64, [-1], "no uint64"),
        (dtypes.BOOL, [1], "a number 1"),
        (dtypes.STRING, [1], "a number 1"),
        (dtypes.STRING, [{"b64": "!"}], "no base64"),
        (dtypes.STRING, [{"b64": "AA", "c": 1}], "an object"),
        (dtypes.COMPLEX64, [1], "no form in JSON"),
    ],
)
def test_what_cannot_be_meant(dtype: DType, value: Any, words: str) -> None:
    with pytest.raises(ServingError) as caught:
        read(dtype, value)
    assert words in caught.value.message


def test_numbers_that_json_does_not_have() -> None:
    assert str(document(b'{"a": [NaN, Infinity, -Infinity]}')) == "{'a': [nan, inf, -inf]}"


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"1", b"{", b'{"a": nan}', b'{"a": NaN', b'{"a":1} x', b'{"a":"\xff"}', b'{"NaN":' + b"[" * 100_000,
     b'{"a":' + b"[" * 100_000, b'{"Infinity":' + b"9" * 5000 + b"}x"],
)  # fmt: skip
def test_what_is_no_document(body: bytes) -> None:
    with pytest.raises(BadRequest):
        document(body)


def test_a_key_that_is_there_twice_is_refused_where_it_matters() -> None:
    with pytest.raises(BadRequest, match="'a' twice"):
        document(b'{"a": 1, "a": 2}', b'"a"')
    assert document(b'{"a": {"a": "a"}}', b'"a"') == {"a": {"a": "a"}}
