"""Tensors as bare bytes, as the Open Inference Protocol carries them: little endian, strings
with their lengths.
"""

from math import prod

import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Values
from cloud_ml.serving.errors import BadRequest
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Shape, TensorSpec


def read(data: bytes, spec: TensorSpec, shape: Shape) -> Values:
    """The values of an input.

    Raises:
        BadRequest: where the bytes are not as many as the shape takes.
    """
    count = prod(shape)
    if spec.dtype is dtypes.STRING:
        strings: Array = _strings(data, spec, count).reshape(shape)
        return strings
    if len(data) != count * spec.dtype.size:
        takes = f"shape {list(shape)} of {spec.dtype.oip} takes {count * spec.dtype.size}"
        raise BadRequest(f"input {spec.name!r} has {len(data)} bytes; {takes}")
    if spec.dtype is dtypes.BOOL:
        truth: Array = np.frombuffer(data, np.uint8) != 0
        return truth.tobytes()
    return data


def _strings(data: bytes, spec: TensorSpec, count: int) -> Array:
    made, at, end = [], 0, len(data)
    while at + 4 <= end:
        stop = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if stop > end:
            raise BadRequest(f"input {spec.name!r} has a string that is longer than its bytes")
        made.append(data[at + 4 : stop])
        at = stop
    if at != end or len(made) != count:
        raise BadRequest(
            f"input {spec.name!r} has {len(made)} strings in {end} bytes, its shape takes {count}"
        )
    array = np.empty(count, object)
    array[:] = made
    return array


def write(array: Array, spec: TensorSpec) -> bytes:
    """The bytes of an output."""
    if spec.dtype is not dtypes.STRING:
        return array.tobytes()
    parts: list[bytes] = []
    for value in array.ravel().tolist():
        data = value if isinstance(value, bytes) else str(value).encode()
        parts += (len(data).to_bytes(4, "little"), data)
    return b"".join(parts)
