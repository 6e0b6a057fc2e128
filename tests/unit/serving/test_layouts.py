"""Requests known by their bytes mean what the library reads from them, or are not known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import tensor_proto
from cloud_ml.serving.codecs.layouts import MOST, Layouts, predict_spans
from cloud_ml.serving.protos import message
from cloud_ml.serving.signatures import Signature, TensorSpec

PREFIX = b"\0\0\0\0\0"
NUMBERS = [each for each in dtypes.ALL if each not in (dtypes.STRING, dtypes.BOOL)]
LISTED = [each for each in NUMBERS if each.packed_raw]


def request_of(arrays: dict[str, tuple[dtypes.DType, np.ndarray, bool]]) -> bytes:
    made = message("tensorflow.serving.PredictRequest")()
    made.model_spec.name = "m"
    for name, (dtype, array, content) in arrays.items():
        if content:
            tensor = made.inputs[name]
            tensor.dtype, tensor.tensor_content = dtype.number, array.tobytes()
            for size in array.shape:
                tensor.tensor_shape.dim.add(size=size)
        else:
            made.inputs[name].ParseFromString(tensor_proto.encode(dtype, array))
    return PREFIX + made.SerializeToString()


def signature_of(arrays: dict[str, tuple[dtypes.DType, np.ndarray, bool]]) -> Signature:
    return Signature("s", tuple(TensorSpec(name, each[0], None) for name, each in sorted(arrays.items())), ())


def spans_of(body: bytes, signature: Signature) -> list[tuple[int, int]] | None:
    asked = message("tensorflow.serving.PredictRequest").FromString(body[5:])
    return predict_spans(body, 5, signature, asked.inputs)


def arrays_of(dtype: dtypes.DType) -> st.SearchStrategy[np.ndarray]:
    sizes = st.lists(st.integers(1, 4), max_size=3)
    return st.builds(
        lambda shape, seed: np.random.default_rng(seed).integers(0, 100, shape).astype(dtype.numpy).reshape(shape),
        sizes, st.integers(0, 1000),
    )  # fmt: skip


tensors = st.one_of(
    st.sampled_from(NUMBERS).flatmap(lambda dtype: arrays_of(dtype).map(lambda array: (dtype, array, True))),
    st.sampled_from(LISTED).flatmap(lambda dtype: arrays_of(dtype).map(lambda array: (dtype, array, False))),
)


@given(st.dictionaries(st.text("abc_", min_size=1, max_size=8), tensors, min_size=1, max_size=3))
def test_the_spans_of_a_request_are_its_values(arrays: dict[str, tuple[dtypes.DType, np.ndarray, bool]]) -> None:
    body, signature = request_of(arrays), signature_of(arrays)
    spans = spans_of(body, signature)
    assert spans is not None
    for spec, (start, end) in zip(signature.inputs, spans, strict=True):
        assert body[start:end] == arrays[spec.name][1].tobytes()
    layouts: Layouts[str] = Layouts()
    layouts.learn(body, spans, "plan")
    found = layouts.find(body)
    assert found is not None
    assert found.plan == "plan"
    assert list(found.spans) == spans


@given(st.integers(5, 60), st.integers(1, 255))
def test_a_request_that_differs_elsewhere_is_not_known(place: int, change: int) -> None:
    arrays = {"x": (dtypes.FLOAT, np.ones((2, 2), np.float32), True)}
    body = request_of(arrays)
    spans = spans_of(body, signature_of(arrays))
    assert spans is not None
    layouts: Layouts[str] = Layouts()
    layouts.learn(body, spans, "plan")
    if place < len(body):
        other = body[:place] + bytes([body[place] ^ change]) + body[place + 1 :]
        within = spans[0][0] <= place < spans[0][1]
        assert (layouts.find(other) is not None) == within
    assert layouts.find(body + b"\0") is None


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": (dtypes.INT32, np.array([1, 300]), False)},  # varints
        {"x": (dtypes.STRING, np.array([b"a", b"b"], object), False)},
        {"x": (dtypes.BOOL, np.array([True]), False)},  # a byte of 2 would be true and no bool
        {"x": (dtypes.FLOAT, np.zeros((0, 3), np.float32), True)},
    ],
)
def test_values_that_are_not_plain_bytes_are_read_by_the_library(
    arrays: dict[str, tuple[dtypes.DType, np.ndarray, bool]],
) -> None:
    assert spans_of(request_of(arrays), signature_of(arrays)) is None


def test_one_value_for_many_elements_is_not_taken_for_its_bytes() -> None:
    made = message("tensorflow.serving.PredictRequest")()
    tensor = made.inputs["x"]
    tensor.dtype = 1
    tensor.float_val.append(1.5)
    tensor.tensor_shape.dim.add(size=4)
    assert tensor_proto.decode("x", tensor).tolist() == [1.5] * 4
    signature = Signature("s", (TensorSpec("x", dtypes.FLOAT, None),), ())
    assert spans_of(PREFIX + made.SerializeToString(), signature) is None


def test_a_tensor_that_is_there_twice_is_read_by_the_library() -> None:
    arrays = {"x": (dtypes.FLOAT, np.ones(2, np.float32), True)}
    body = request_of(arrays)
    assert spans_of(body + body[5:], signature_of(arrays)) is None


def test_there_is_a_bound_to_what_is_kept() -> None:
    layouts: Layouts[int] = Layouts()
    for size in range(1, 3 * MOST):
        layouts.learn(b"x" * size, [(0, 1)], size)
    assert sum(layouts.find(b"x" * size) is not None for size in range(1, 3 * MOST)) <= MOST


def test_a_message_with_a_group_that_nobody_knows_is_read_and_not_remembered() -> None:
    arrays = {"x": (dtypes.FLOAT, np.ones(2, np.float32), True)}
    assert spans_of(request_of(arrays) + b"\x0b\x0c", signature_of(arrays)) is None
