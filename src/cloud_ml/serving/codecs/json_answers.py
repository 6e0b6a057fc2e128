"""Tensors as JSON, as TensorFlow Serving writes them."""

import base64
import re
from typing import Any

import numpy as np
import orjson

from cloud_ml.serving import dtypes
from cloud_ml.serving.errors import Unsupported
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import TensorSpec

_NULL = re.compile(b"null")


def text(array: Array, spec: TensorSpec) -> bytes:
    """An array as lists of lists: a float32 with as few digits as tell it, NaN and Infinity by
    their names.

    Strings of an output whose name ends in ``_bytes``, and those that are no Unicode, are
    ``{"b64": …}``.
    """
    if spec.dtype is dtypes.STRING:
        binary = spec.name.endswith("_bytes")
        flat = array.ravel().tolist()
        made = np.empty(len(flat), object)
        made[:] = [encode_element(each, binary=binary) for each in flat]
        return orjson.dumps(made.reshape(array.shape).tolist())
    if array.dtype.kind == "c":
        raise Unsupported(f"output {spec.name!r} is {spec.dtype}, which has no form in JSON")
    return numbers(array)


def rows(array: Array, spec: TensorSpec) -> list[bytes]:
    """Each row of an array by itself: numbers are written in one go for all of them."""
    if spec.dtype is dtypes.STRING or not array.size:
        return [text(array[row : row + 1], spec)[1:-1] for row in range(len(array))]
    depth = array.ndim - 1
    opened, closed = b"[" * depth, b"]" * depth
    between = text(array, spec)[1 + depth : -1 - depth].split(closed + b"," + opened)
    return [opened + row + closed for row in between] if depth else between


def numbers(array: Array) -> bytes:
    """An array of numbers or truth values as lists of lists."""
    try:
        made = orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # a layout or a type that orjson does not know
        made = _unusual(array)
    # orjson writes NaN and the infinities as null, and nothing else in an array of numbers.
    if b"null" in made:
        names = iter([_name(each) for each in array[~np.isfinite(array)].tolist()])
        made = _NULL.sub(lambda _: next(names), made)
    return made


def _unusual(array: Array) -> bytes:
    if array.dtype == dtypes.BFLOAT16.numpy:
        array = array.astype(np.float32)
    if not array.ndim:
        return orjson.dumps(array[()], option=orjson.OPT_SERIALIZE_NUMPY)
    return orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)


def _name(value: float) -> bytes:
    return b"NaN" if value != value else b"Infinity" if value > 0 else b"-Infinity"  # noqa: PLR0124 - NaN


def encode_element(value: Any, *, binary: bool) -> Any:
    """An element of a tensor of strings."""
    data = value if isinstance(value, bytes) else str(value).encode()
    if not binary:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(data).decode()}
