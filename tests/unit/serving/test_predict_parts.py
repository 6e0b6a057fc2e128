"""Requests read part by part have the values that the library reads, or are not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import tensor_proto, wire
from cloud_ml.serving.codecs.predict_parts import (
    MAX_BYTES,
    MAX_FORMS,
    MAX_INPUTS,
    Parts,
    PredictParts,
)
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.protos import message
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Shape

PREFIX = b"\0\0\0\0\0"
SPEC = wire.encode_delimited(1, wire.encode_delimited(1, b"m"))
FORMS = ("content", "packed", "single")
Tensors = dict[str, tuple[DType, Array, str]]


def tensor(dtype: DType, array: Array, form: str) -> bytes:
    """The fields of a tensor, its values in one of three forms."""
    if form == "content":
        header = tensor_proto.header(dtype, array.shape)
        return header + wire.encode_delimited(4, array.tobytes())
    if form == "packed" or dtype is dtypes.STRING:
        return tensor_proto.encode(dtype, array)
    number, raw = tensor_proto.payload_field(dtype), array.tobytes()
    header = tensor_proto.header(dtype, array.shape)
    if not dtype.packed_raw or dtype is dtypes.BOOL:
        whole = array.view(np.uint16) if dtype.field == "half_val" else array
        return header + b"".join(
            wire.key(number, 0) + each for each in wire.varints(whole.ravel().tolist())
        )
    width = dtype.size // (2 if dtype.numpy.kind == "c" else 1)
    key = wire.key(number, wire.FIXED32 if width == 4 else wire.FIXED64)
    return header + b"".join(key + raw[at : at + width] for at in range(0, len(raw), width))


def entry(name: str, message_: bytes) -> bytes:
    return wire.encode_delimited(
        2, wire.encode_delimited(1, name.encode()) + wire.encode_delimited(2, message_)
    )


def request(tensors: Tensors, names: list[str] | None = None) -> bytes:
    return (
        PREFIX + SPEC + b"".join(entry(name, tensor(*tensors[name])) for name in names or tensors)
    )


def parse_request(body: bytes) -> Any:
    return message("tensorflow.serving.PredictRequest").FromString(body[5:])


def learn(parts: PredictParts, body: bytes) -> None:
    inputs = parse_request(body).inputs
    parts.learn(
        body, inputs, {name: tensor_proto.decode(name, proto) for name, proto in inputs.items()}
    )


def knowing(*bodies: bytes) -> PredictParts:
    parts = PredictParts()
    for body in bodies:
        learn(parts, body)
    return parts


def arrays_of(read: Parts | None) -> dict[str, tuple[Shape, Any]]:
    """Shapes and values, as lists."""
    assert read is not None
    made = {}
    for name, known in read.inputs.items():
        values, dtype = known.values, known.type.dtype
        flat = values if isinstance(values, np.ndarray) else np.frombuffer(values, dtype.numpy)
        made[name] = known.type.shape, flat.ravel().tolist()
    return made


def sent(tensors: Tensors) -> dict[str, tuple[Shape, Any]]:
    return {name: (array.shape, array.ravel().tolist()) for name, (_, array, _) in tensors.items()}


def arrays(dtype: DType, shape: Shape, seed: int) -> Array:
    random = np.random.default_rng(seed)
    if dtype is dtypes.STRING:
        made = np.empty(shape, object)
        made.ravel()[:] = [random.bytes(int(size)) for size in random.integers(0, 9, made.size)]
        return made
    most = 2 if dtype is dtypes.BOOL else 128 if seed % 2 else 120
    return random.integers(0, most, shape).astype(dtype.numpy)


tensors = st.builds(
    lambda dtype, shape, seed, form: (
        dtype,
        arrays(dtype, tuple(shape), seed),
        "packed" if dtype is dtypes.STRING else form,
    ),
    st.sampled_from(dtypes.ALL),
    st.lists(st.integers(1, 4), max_size=3),
    st.integers(0, 99),
    st.sampled_from(FORMS),
)


@given(
    st.dictionaries(st.text("abc_", min_size=1, max_size=8), tensors, min_size=1, max_size=4),
    st.randoms(),
)
def test_inputs_are_read_in_any_order(given_: Tensors, random: Any) -> None:
    names = list(given_)
    parts = knowing(request(given_))
    random.shuffle(names)
    if any(
        form == "single" and dtype is dtypes.BOOL and a.size > 1
        for dtype, a, form in given_.values()
    ):
        assert parts.read(request(given_, names)) is None  # read by the library
        return
    assert arrays_of(parts.read(request(given_, names))) == sent(given_)


@given(st.sampled_from(dtypes.ALL), st.sampled_from(FORMS), st.integers(0, 99))
def test_other_values_are_read(dtype: DType, form: str, seed: int) -> None:
    form = "packed" if dtype is dtypes.STRING else form
    first, second = (
        {"x": (dtype, arrays(dtype, (3,), each), form)} for each in (2 * seed, 2 * seed + 2)
    )
    read = knowing(request(first)).read(request(second))
    if read is not None:  # varints and strings may be longer
        assert arrays_of(read) == sent(second)
    else:
        assert dtype in (dtypes.STRING, dtypes.BOOL) or len(request(first)) != len(request(second))


def test_inputs_of_several_requests_go_together() -> None:
    def pair(rows: int, form: str) -> Tensors:
        return {
            "keys": (dtypes.INT32, np.arange(rows, dtype=np.int32), form),
            "X": (dtypes.FLOAT, np.arange(rows, dtype=np.float32), form),
        }

    parts = knowing(
        request(pair(1, "packed")), request(pair(5, "content")), request(pair(5, "single"))
    )
    mixed = {"keys": pair(5, "single")["keys"], "X": pair(1, "packed")["X"]}
    assert arrays_of(parts.read(request(mixed))) == sent(mixed)
    assert parts.read(request(pair(2, "packed"))) is None


@given(st.data())
def test_a_request_that_differs_beside_its_values_is_not_known_or_read_as_the_library_does(
    data: st.DataObject,
) -> None:
    given_: Tensors = {
        "keys": (dtypes.INT32, np.array([[300], [7]], np.int32), data.draw(st.sampled_from(FORMS))),
        "X": (
            dtypes.FLOAT,
            np.array([[1.5], [2.5]], np.float32),
            data.draw(st.sampled_from(FORMS)),
        ),
    }
    body = request(given_)
    changed = bytearray(body)
    place = data.draw(st.integers(5, len(body) - 1))
    changed[place] = data.draw(st.integers(0, 255))
    cut = bytes(changed)[: data.draw(st.integers(6, len(body)))]
    read = knowing(body).read(cut)
    if read is None or read.others != SPEC:  # no target is known by other fields
        return
    parsed = parse_request(cut)
    assert set(parsed.inputs) == set(read.inputs)
    for name, (shape, values) in arrays_of(read).items():
        array = tensor_proto.decode(name, parsed.inputs[name])
        assert (array.shape, array.ravel().tobytes()) == (
            shape,
            np.array(values, array.dtype).tobytes(),
        )


X: Tensors = {"x": (dtypes.FLOAT, np.ones((2, 2), np.float32), "content")}
_X = wire.encode_delimited(1, b"x")
_TENSOR = wire.encode_delimited(2, tensor(*X["x"]))


@pytest.mark.parametrize(
    "fields",
    [
        wire.encode_delimited(2, _X + _TENSOR) * 2,  # the last one counts
        wire.encode_delimited(
            2, _X + _TENSOR + wire.encode_delimited(2, wire.encode_delimited(4, bytes(16)))
        ),  # merged
        wire.encode_delimited(2, _X + _TENSOR + _X),
        wire.encode_delimited(2, _X + _TENSOR + wire.encode_delimited(3, b"")),
        wire.encode_delimited(2, _X + _TENSOR) + b"\x9b\x06\x9c\x06",  # a group nobody knows
        wire.encode_delimited(2, _X + _TENSOR) + wire.key(200, 0) + b"\x01",
        wire.encode_delimited(
            2, _X + wire.encode_delimited(2, tensor_proto.header(dtypes.FLOAT, (0, 3)))
        ),
        wire.encode_delimited(
            2, _X + wire.encode_delimited(2, tensor(*X["x"]) + wire.encode_delimited(5, b"abcd"))
        ),  # two lists
        wire.encode_delimited(
            2,
            _X + wire.encode_delimited(2, tensor(*X["x"]) + wire.encode_delimited(4, b"abcd" * 4)),
        ),
        wire.encode_delimited(
            2, _X + wire.encode_delimited(2, tensor(*X["x"]) + b"\x9b\x06\x9c\x06")
        ),
    ],
)
def test_what_the_library_merges_or_passes_over_is_left_to_it(fields: bytes) -> None:
    body = PREFIX + SPEC + fields
    assert knowing(body, request(X)).read(body) is None


def test_one_value_may_stand_for_many() -> None:
    made = message("tensorflow.TensorProto")(dtype=1, float_val=[1.5])
    made.tensor_shape.dim.add(size=4)
    body = PREFIX + SPEC + entry("x", made.SerializeToString())
    made.float_val[0] = 2.5
    other = PREFIX + SPEC + entry("x", made.SerializeToString())
    assert arrays_of(knowing(body).read(other)) == {"x": ((4,), [2.5] * 4)}


def test_the_fields_beside_the_inputs_are_given_in_their_order() -> None:
    body, output_filter = request(X), wire.encode_delimited(3, b"out")
    read = knowing(body).read(PREFIX + output_filter + body[5:] + output_filter)
    assert read is not None
    assert read.others == output_filter + SPEC + output_filter


def test_there_is_a_bound_to_the_inputs_that_are_kept() -> None:
    parts = PredictParts()
    named = [request({f"x{number}": X["x"]}) for number in range(2 * MAX_INPUTS)]
    for body in named:
        learn(parts, body)
    assert sum(parts.read(body) is not None for body in named) <= MAX_INPUTS
    kept = sum(len(form.inputs) for forms in parts._forms.values() for form in forms)
    assert kept == parts._count
    assert kept <= MAX_INPUTS


def test_there_is_a_bound_to_the_forms_of_one_size() -> None:
    parts = PredictParts()
    bodies = []
    for width in range(1, 3 * MAX_FORMS):  # the longer the name, the shorter the values
        array = np.ones(60 - width, np.int8)
        bodies.append(request({"x" * width: (dtypes.INT8, array, "content")}))
        learn(parts, bodies[-1])
    assert len({len(body) for body in bodies}) == 1
    assert [parts.read(body) is not None for body in bodies[-MAX_FORMS:]] == [True] * MAX_FORMS
    assert sum(parts.read(body) is not None for body in bodies) == MAX_FORMS
    assert parts._count == MAX_FORMS


def test_an_input_that_is_long_beside_its_values_is_not_kept() -> None:
    body = request({"x" * MAX_BYTES: X["x"]})
    assert knowing(body).read(body) is None
