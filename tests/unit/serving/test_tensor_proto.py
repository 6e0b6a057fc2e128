"""Tensors as TensorFlow's messages: what is read and written is what TensorFlow means by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import tensor_proto
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.protos import message

Proto = message("tensorflow.TensorProto")


def arrays(dtype: dtypes.DType) -> st.SearchStrategy[np.ndarray]:
    if dtype is dtypes.STRING:
        elements = st.lists(st.binary(max_size=300), min_size=1, max_size=5)
        return elements.map(lambda values: np.array([*values, None], object)[:-1])
    raw = st.binary(min_size=3 * dtype.size, max_size=3 * dtype.size)
    if dtype is dtypes.BOOL:
        return raw.map(lambda data: np.frombuffer(data, np.uint8) > 127)
    return raw.map(lambda data: np.frombuffer(data, dtype.numpy))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@given(data=st.data())
def test_every_type_goes_there_and_back_bit_by_bit(
    dtype: dtypes.DType, data: st.DataObject
) -> None:
    array = data.draw(arrays(dtype))
    proto = Proto.FromString(tensor_proto.encode(dtype, array))
    back = tensor_proto.decode("x", proto)
    assert back.dtype == array.dtype
    assert back.tolist() == array.tolist() or back.tobytes() == array.tobytes()


def test_shapes_are_kept_also_the_empty_ones() -> None:
    for shape in ((), (1,), (0,), (2, 0, 3), (2, 3)):
        array = np.zeros(shape, np.float32)
        assert (
            tensor_proto.decode(
                "x", Proto.FromString(tensor_proto.encode(dtypes.FLOAT, array))
            ).shape
            == shape
        )


def of(number: int, shape: list[int], **fields: object) -> object:
    made = Proto(dtype=number, **fields)
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    return made


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (of(0, [1]), "dtype 0"),
        (of(20, [1]), "dtype 20"),
        (of(1, [-1], float_val=[1]), "sizes are 0 or more"),
        (of(1, [1 << 40], float_val=[1]), "larger than"),
        (of(1, [1 << 62, 1 << 62], float_val=[1]), "larger than"),
        (of(1, [2], double_val=[1, 2]), "has values in double_val, not in float_val"),
        (of(1, [1 << 20]), "0 values"),
        (of(1, [2], float_val=[1, 2, 3]), "3 values"),
        (
            of(1, [2], tensor_content=b"1234567"),
            "7 bytes of tensor_content; shape [2] of float32 takes 8",
        ),
        (of(7, [1], tensor_content=b"a"), "string_val"),
        (of(4, [1], int_val=[256]), "no uint8"),
        (of(6, [1], int_val=[-129]), "no int8"),
        (of(8, [1], scomplex_val=[1.0]), "pairs"),
        (Proto(dtype=1, tensor_shape={"unknown_rank": True}), "no rank"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(proto: object, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        tensor_proto.decode("x", proto)
    assert words in caught.value.message
    assert "'x'" in caught.value.message


def test_a_short_list_is_filled_with_its_last_value() -> None:
    assert tensor_proto.decode("x", of(1, [2, 2], float_val=[1, 2])).tolist() == [[1, 2], [2, 2]]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_a_shape_without_values_is_zeros(dtype: dtypes.DType) -> None:
    made = tensor_proto.decode("x", of(dtype.number, [2, 2]))
    assert made.dtype == dtype.numpy
    assert made.tolist() == [[b"" if dtype is dtypes.STRING else 0] * 2] * 2


def test_a_bool_is_true_or_false_whatever_its_byte() -> None:
    assert tensor_proto.decode("x", of(10, [3], tensor_content=b"\x00\x01\x07")).tolist() == [
        False,
        True,
        True,
    ]
