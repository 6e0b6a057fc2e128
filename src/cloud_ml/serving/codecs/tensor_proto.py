"""TensorFlow's ``TensorProto`` to arrays and back."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import wire
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Shape, Signature

LARGEST = 1 << 31
"""Bytes that a tensor may have; a shape is no reason to ask for memory."""
FILLED = 1 << 18
"""Bytes of a tensor whose list of values is filled up: a few bytes must not become gigabytes."""

FEW = 64
"""Values below which a loop over them costs less than numpy's calls."""

_FIELD_NUMBERS = {
    "float_val": 5,
    "double_val": 6,
    "int_val": 7,
    "string_val": 8,
    "scomplex_val": 9,
    "int64_val": 10,
    "bool_val": 11,
    "dcomplex_val": 12,
    "half_val": 13,
    "uint32_val": 16,
    "uint64_val": 17,
}


def shape_of(name: str, proto: Any) -> Shape:
    """The shape that a message tells, which must be known."""
    if proto.tensor_shape.unknown_rank:
        raise BadRequest(f"input {name!r} has no rank")
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if any(size < 0 for size in shape):
        raise BadRequest(f"input {name!r} has shape {list(shape)}: sizes are 0 or more")
    return shape


def dtype_of(name: str, proto: Any) -> DType:
    """The element type that a message tells."""
    found = dtypes.BY_NUMBER.get(proto.dtype)
    if found is None:
        raise BadRequest(f"input {name!r} has dtype {proto.dtype}, which cannot be served")
    return found


def arrays_of(signature: Signature, protos: Mapping[str, Any]) -> list[Array]:
    """The inputs of a request, judged and in the order of the signature.

    Raises:
        BadRequest: where they are not what the signature takes.
    """
    signature.check_names(protos)
    arrays = []
    for spec in signature.inputs:
        proto = protos[spec.name]
        with signature.explained_refusals():
            signature.check_tensor(spec, dtype_of(spec.name, proto), shape_of(spec.name, proto))
            arrays.append(decode(spec.name, proto))
    return arrays


def decode(name: str, proto: Any) -> Array:
    """The array of a message; ``name`` is for what is said of it.

    As in TensorFlow, a list that is shorter than the tensor is filled up with its last value, and
    one without values with zeros or empty strings. Values in the list of another type are refused,
    though TensorFlow passes over them.

    Raises:
        BadRequest: where the parts of the message do not go together.
    """
    dtype, shape = dtype_of(name, proto), shape_of(name, proto)
    count = prod(shape)
    if count * max(dtype.size, 1) > LARGEST:
        raise BadRequest(f"input {name!r} of shape {list(shape)} is larger than {LARGEST} bytes")
    if proto.tensor_content:
        return _content(name, dtype, shape, count, proto.tensor_content)
    values = getattr(proto, dtype.field)
    flat = _values(name, dtype, values)
    if flat.size != count:
        if flat.size > count:
            raise BadRequest(f"input {name!r} has {flat.size} values for shape {list(shape)}")
        if count * max(dtype.size, 1) > FILLED:
            problem = f"input {name!r} has {flat.size} values for shape {list(shape)}"
            raise BadRequest(
                f"{problem}; a list is filled up with its last value to {FILLED} bytes at most"
            )
        last = flat[-1:] if flat.size else _nothing(name, dtype, proto)
        flat = np.concatenate([flat, np.broadcast_to(last, (count - flat.size,))])
    made: Array = flat.reshape(shape)
    return made


def _nothing(name: str, dtype: DType, proto: Any) -> Array:
    """What stands for values that a message does not have."""
    for field in _FIELD_NUMBERS:
        if field != dtype.field and getattr(proto, field):
            raise BadRequest(
                f"input {name!r} is {dtype} and has values in {field}, not in {dtype.field}"
            )
    return np.array([b""], object) if dtype is dtypes.STRING else np.zeros(1, dtype.numpy)


def _content(name: str, dtype: DType, shape: Shape, count: int, content: bytes) -> Array:
    if dtype is dtypes.STRING:
        raise BadRequest(f"input {name!r}: strings go into string_val, not into tensor_content")
    if len(content) != count * dtype.size:
        takes = f"shape {list(shape)} of {dtype} takes {count * dtype.size}"
        raise BadRequest(f"input {name!r} has {len(content)} bytes of tensor_content; {takes}")
    # Any byte but 0 is true; an array of truth values may hold 0 and 1 only.
    if dtype is dtypes.BOOL:
        truth: Array = np.frombuffer(content, np.uint8) != 0
        return truth.reshape(shape)
    return np.frombuffer(content, dtype.numpy).reshape(shape)


def _values(name: str, dtype: DType, values: Any) -> Array:
    if dtype is dtypes.STRING:
        made = np.empty(len(values), object)
        made[:] = values
        return made
    if dtype in (dtypes.HALF, dtypes.BFLOAT16):
        # tensor.proto: `half_val` has the 16 bits of each value in an int32.
        return np.asarray(values, np.uint32).astype(np.uint16).view(dtype.numpy)
    if dtype in (dtypes.COMPLEX64, dtypes.COMPLEX128):
        parts = np.asarray(values, np.float32 if dtype is dtypes.COMPLEX64 else np.float64)
        if parts.size % 2:
            raise BadRequest(f"input {name!r}: complex values come in pairs")
        return parts.view(dtype.numpy)
    wide = np.asarray(values, dtype.numpy if dtype.field != "int_val" else np.int64)
    if dtype.field == "int_val" and wide.size:
        bounds = np.iinfo(dtype.name)
        if wide.min() < bounds.min or wide.max() > bounds.max:
            raise BadRequest(f"input {name!r} has a value that is no {dtype}")
    return wide.astype(dtype.numpy, copy=False)


def header(dtype: DType, shape: Shape) -> bytes:
    """The beginning of a message: type and shape."""
    dims = b"".join(
        wire.encode_delimited(2, wire.key(1, wire.VARINT) + wire.varint(size)) for size in shape
    )
    return wire.key(1, wire.VARINT) + wire.varint(dtype.number) + wire.encode_delimited(2, dims)


def payload_field(dtype: DType) -> int:
    """The number of the list that holds values of this type."""
    return _FIELD_NUMBERS[dtype.field]


def value_count(dtype: DType, proto: Any) -> int:
    """How many values the list of a message has."""
    values = len(getattr(proto, dtype.field))
    return values // 2 if dtype in (dtypes.COMPLEX64, dtypes.COMPLEX128) else values


def payload(dtype: DType, array: Array) -> bytes:
    """The list of values of an array, as a whole field.

    Lists, not ``tensor_content``: it is what TensorFlow Serving answers with, and what clients
    read.
    """
    content = pack_values(dtype, array)
    if dtype is dtypes.STRING or not content:
        return content
    return wire.encode_delimited(payload_field(dtype), content)


def pack_values(dtype: DType, array: Array) -> bytes:
    """The values of an array, packed as its list wants them. Strings are whole fields: they
    cannot be packed.
    """
    content = _fixed_width(dtype, array)
    return content if content is not None else b"".join(_elements(dtype, array))


def packed_rows(dtype: DType, array: Array) -> list[bytes]:
    """What ``packed`` makes of each row alone, for all rows at once."""
    rows = len(array)
    content = _fixed_width(dtype, array)
    if content is not None:
        size = len(content) // rows if rows else 0
        return (
            [content[at : at + size] for at in range(0, rows * size, size)]
            if size
            else [b""] * rows
        )
    elements = _elements(dtype, array)
    width = len(elements) // rows if rows else 0
    if width == 1:
        return elements
    return [b"".join(elements[row * width : (row + 1) * width]) for row in range(rows)]


def _fixed_width(dtype: DType, array: Array) -> bytes | None:
    """The packed values, if each of them takes the same number of bytes."""
    if dtype.packed_raw:
        return array.tobytes()
    if dtype is dtypes.STRING or array.size < FEW:
        return None
    if dtype in (dtypes.HALF, dtypes.BFLOAT16):
        array = np.ascontiguousarray(array).view(np.uint16)
    if array.min() < 0 or array.max() >= 0x80:
        return None
    return array.astype(np.uint8).tobytes()  # a small number is its own varint


def _elements(dtype: DType, array: Array) -> list[bytes]:
    """Each value of an array as a string field, or as a packed varint."""
    if dtype is dtypes.STRING:
        number = payload_field(dtype)
        return [wire.encode_delimited(number, as_bytes(each)) for each in array.ravel().tolist()]
    if dtype in (dtypes.HALF, dtypes.BFLOAT16):
        array = np.ascontiguousarray(array).view(np.uint16)
    return wire.varints(array.ravel().tolist())


def as_bytes(value: Any) -> bytes:
    """One element of a tensor of strings."""
    return value if isinstance(value, bytes) else str(value).encode()


def encode(dtype: DType, array: Array) -> bytes:
    """The whole message of an array."""
    return header(dtype, array.shape) + payload(dtype, array)
