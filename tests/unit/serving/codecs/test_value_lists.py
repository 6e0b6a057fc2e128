"""Lists of values are read from their bytes as the protobuf library reads them, or not at all."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import tensor_proto, value_lists, wire
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import Array

INTEGERS = [each for each in dtypes.ALL if not each.packed_raw and each is not dtypes.STRING]
TEN = b"\xff" * 9


def by_library(dtype: DType, count: int, fields: bytes) -> Array | None:
    """The array of a tensor of ``count`` values whose list is in these fields."""
    header = tensor_proto.header(dtype, (count,))
    try:
        proto = message("tensorflow.TensorProto").FromString(header + fields)
        if len(getattr(proto, dtype.field)) != count * (2 if dtype.numpy.kind == "c" else 1):
            return None
        return tensor_proto.decode("x", proto)
    except (DecodeError, BadRequest):
        return None


def agrees(dtype: DType, count: int, made: bytes | Array | None, fields: bytes) -> None:
    """What was decoded is what the library reads; None is always right."""
    if made is None:
        return
    expected = by_library(dtype, count, fields)
    assert expected is not None
    if isinstance(made, bytes):
        assert made == expected.tobytes()
    else:
        assert made.tolist() == expected.tolist()


numbers = st.one_of(st.integers(0, 127), st.integers(0, 1 << 16), st.integers(0, (1 << 64) - 1))


@given(st.sampled_from(INTEGERS), st.lists(numbers, min_size=1, max_size=60))
def test_good_numbers_are_read_packed_and_with_tags(dtype: DType, values: list[int]) -> None:
    number, count = tensor_proto.payload_field(dtype), len(values)
    encoded = [wire.varint(value) for value in values]
    packed, tagged = (
        b"".join(encoded),
        b"".join(wire.key(number, wire.VARINT) + each for each in encoded),
    )
    made = value_lists.packed_varints(dtype, count)(packed)
    again = value_lists.tagged_varints(dtype, number << 3, count)(tagged)
    agrees(dtype, count, made, wire.encode_delimited(number, packed))
    agrees(dtype, count, again, tagged)
    assert made == again
    small = dtype.size < 4
    assert (made is not None) or small or dtype.field == "half_val"
    if all(value < 0x80 for value in values):
        assert (
            made
            == np.array(values)
            .astype(dtype.numpy if dtype.numpy.kind in "iu" else np.uint16)
            .tobytes()
        )


@given(st.sampled_from(INTEGERS), st.integers(1, 40), st.binary(max_size=60))
@example(dtypes.INT64, 1, TEN + b"\x01")
@example(dtypes.INT64, 1, TEN + b"\x02")
@example(dtypes.INT64, 1, TEN + b"\x81\x00")
@example(dtypes.INT32, 1, b"\x80\x00")
@example(dtypes.INT32, 2, b"\x01")
@example(dtypes.INT8, 1, b"\x80\x01")
@example(dtypes.INT8, 1, b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(dtypes.UINT8, 1, b"\xff\x01")
@example(dtypes.UINT8, 1, b"\x80\x02")
@example(dtypes.INT16, 25, b"\x01" * 24 + TEN + b"\x02")
def test_any_bytes_are_read_as_by_the_library_or_refused(
    dtype: DType, count: int, data: bytes
) -> None:
    number = tensor_proto.payload_field(dtype)
    agrees(
        dtype,
        count,
        value_lists.packed_varints(dtype, count)(data),
        wire.encode_delimited(number, data),
    )
    tagged = value_lists.tagged_varints(dtype, number << 3, count)
    agrees(dtype, count, tagged(data), data)
    led = wire.key(number, wire.VARINT) + data
    agrees(dtype, count, tagged(led), led)


@pytest.mark.parametrize(
    "dtype", [each for each in dtypes.ALL if each.packed_raw and each is not dtypes.BOOL], ids=str
)
def test_numbers_of_fixed_width_are_read_with_their_tags(dtype: DType) -> None:
    number = tensor_proto.payload_field(dtype)
    complex_ = dtype.numpy.kind == "c"
    width = dtype.size // 2 if complex_ else dtype.size
    kind = wire.FIXED32 if width == 4 else wire.FIXED64
    array = np.arange(1, 4).astype(dtype.numpy)
    raw, tag = array.tobytes(), wire.key(number, kind)
    fields = b"".join(tag + raw[at : at + width] for at in range(0, len(raw), width))
    decode = value_lists.tagged_numbers(tag[0], width, len(raw) // width)
    assert decode(fields) == raw
    agrees(dtype, 3, decode(fields), fields)
    for at in range(0, len(fields), width + 1):
        assert decode(fields[:at] + b"\x08" + fields[at + 1 :]) is None
    assert decode(fields[:-1]) is None
    assert decode(fields + fields[: width + 1]) is None


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.data())
def test_strings_are_read_with_their_tags_and_lengths(
    values: list[bytes], data: st.DataObject
) -> None:
    fields = b"".join(wire.encode_delimited(8, value) for value in values)
    decode = value_lists.strings(wire.key(8, wire.DELIMITED)[0], (len(values), 1), len(values))
    made = decode(fields)
    assert isinstance(made, np.ndarray)
    assert made.tolist() == [[value] for value in values]
    changed = bytearray(fields)
    changed[data.draw(st.integers(0, len(fields) - 1))] = data.draw(st.integers(0, 255))
    made = decode(bytes(changed))
    assert made is None or isinstance(made, np.ndarray)
    agrees(dtypes.STRING, len(values), made.ravel() if made is not None else None, bytes(changed))


def test_truth_values_are_zeros_and_ones() -> None:
    decode = value_lists.truth_values(3)
    assert decode(b"\0\1\1") == b"\0\1\1"
    assert decode(b"\0\2\1") is None
    assert decode(b"\0\1") is None


def test_the_last_value_stands_for_all_that_are_missing() -> None:
    floats = value_lists.fill_list(None, 2, 4)
    assert floats(b"abcdefgh") == b"abcdefghefghefgh"
    whole = value_lists.fill_list(value_lists.packed_varints(dtypes.INT16, 1), 2, 2)
    assert whole(b"\x05") == b"\x05\0\x05\0\x05\0"
    assert whole(b"\x85") is None
