"""Requests of the Open Inference Protocol: what their tensors are, and where they lie."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Outcome
from cloud_ml.serving.codecs.infer_answer import InferAnswer
from cloud_ml.serving.codecs.infer_request import arrays_of, infer_spans, packed_strings
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import Signature, TensorSpec

SAMPLES: dict[DType, Any] = {
    dtypes.BOOL: np.array([True, False]),
    dtypes.INT8: np.array([-1, 2], np.int8),
    dtypes.INT16: np.array([-1, 2], np.int16),
    dtypes.INT32: np.array([-1, 2], np.int32),
    dtypes.INT64: np.array([-(2**62), 2]),
    dtypes.UINT8: np.array([255, 2], np.uint8),
    dtypes.UINT16: np.array([65_535, 2], np.uint16),
    dtypes.UINT32: np.array([2**32 - 1, 2], np.uint32),
    dtypes.UINT64: np.array([2**64 - 1, 2], np.uint64),
    dtypes.FLOAT: np.array([0.5, 2], np.float32),
    dtypes.DOUBLE: np.array([0.1, 2]),
    dtypes.HALF: np.array([0.5, 2], np.float16),
    dtypes.BFLOAT16: np.array([0.5, 2], ml_dtypes.bfloat16),
    dtypes.STRING: np.array([b"", b"\xff\0x"], object),
}


def identity(dtype: DType) -> Signature:
    return Signature("s", (TensorSpec("x", dtype, (-1,)),), (TensorSpec("y", dtype, (-1,)),))


def request(dtype: DType, array: Any, *, raw: bool) -> Any:
    """What an answer with these values says, as a question."""
    answer = InferAnswer(identity(dtype), [0], "m", 1, raw=raw)
    parts, size = answer.parts(Outcome([array]), 0, len(array), b"id")
    response = message("inference.ModelInferResponse").FromString(b"".join(parts))
    assert size == sum(map(len, parts))
    made = message("inference.ModelInferRequest")(
        id=response.id, raw_input_contents=response.raw_output_contents
    )
    tensor = made.inputs.add(
        name="x", datatype=response.outputs[0].datatype, shape=response.outputs[0].shape
    )
    if response.outputs[0].HasField("contents"):
        tensor.contents.CopyFrom(response.outputs[0].contents)
    return made


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", SAMPLES, ids=str)
def test_every_type_comes_back_as_it_went(dtype: DType, raw: bool) -> None:
    infer_request = request(dtype, SAMPLES[dtype], raw=raw)
    (array,) = arrays_of(identity(dtype), infer_request)
    assert array.dtype == dtype.numpy
    assert array.tolist() == SAMPLES[dtype].tolist()


def test_rows_of_one_caller_are_cut_out() -> None:
    outcome = Outcome([np.arange(10, dtype=np.float32)])
    answer = InferAnswer(identity(dtypes.FLOAT), [0], "m", 1, raw=True)
    for first, rows in ((0, 3), (3, 3), (6, 4)):
        parts, _ = answer.parts(outcome, first, rows, b"")
        response = message("inference.ModelInferResponse").FromString(b"".join(parts))
        values = np.frombuffer(response.raw_output_contents[0], np.float32).tolist()
        assert values == list(range(first, first + rows))
        assert list(response.outputs[0].shape) == [rows]


def test_values_are_found_in_the_bytes_and_the_id_after_them() -> None:
    infer_request = request(dtypes.FLOAT, SAMPLES[dtypes.FLOAT], raw=True)
    body = b"12345" + infer_request.SerializeToString()
    spans = infer_spans(body, 5, identity(dtypes.FLOAT), infer_request)
    assert spans is not None
    assert [body[start:end] for start, end in spans] == [SAMPLES[dtypes.FLOAT].tobytes(), b"id"]


@pytest.mark.parametrize("rest", [b"\x0b\x0c", b"\x1a\x02no"])
def test_odd_but_right_messages_are_read_and_not_remembered(rest: bytes) -> None:
    """A group that nobody knows, a second id: the library takes both."""
    body = request(dtypes.FLOAT, SAMPLES[dtypes.FLOAT], raw=True).SerializeToString() + rest
    infer_request = message("inference.ModelInferRequest").FromString(body)
    assert arrays_of(identity(dtypes.FLOAT), infer_request)[0].tolist() == [0.5, 2.0]
    assert infer_spans(body, 0, identity(dtypes.FLOAT), infer_request) is None


def broken(**changes: Any) -> Any:
    made = message("inference.ModelInferRequest")()
    fields = {"name": "x", "datatype": "INT8", "shape": [2]} | changes
    raws = fields.pop("raws", [])
    made.raw_input_contents.extend(raws)
    contents = fields.pop("ints", None)
    tensor = made.inputs.add(**fields)
    if contents is not None:
        tensor.contents.int_contents.extend(contents)
    return made


@pytest.mark.parametrize(
    ("infer_request", "words"),
    [
        (broken(ints=[1]), "has 1 values for shape [2]"),
        (broken(ints=[1, 300]), "has a value that is no INT8"),
        (broken(raws=[b"1"]), "has 1 values for shape [2]"),
        (broken(raws=[b"12"], ints=[1, 2]), "has contents beside raw_input_contents"),
        (broken(ints=[1], shape=[-1]), "sizes are 0 or more"),
        (broken(shape=[1 << 40]), "is larger than"),
        (broken(name="z", ints=[1, 2]), "input 'x' is missing; there is no input 'z'"),
    ],
)
def test_what_does_not_go_together_is_refused(infer_request: Any, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        arrays_of(identity(dtypes.INT8), infer_request)
    assert words in caught.value.message


@pytest.mark.parametrize("raw", [b"\x01", b"\x05\0\0\0abc", b"\xff\xff\xff\xffabc"])
def test_strings_that_end_inside_an_element_are_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="end inside an element"):
        arrays_of(identity(dtypes.STRING), broken(datatype="BYTES", raws=[raw]))
    assert packed_strings(np.array(["a", b"bc"], object)) == b"\x01\0\0\0a\x02\0\0\0bc"
