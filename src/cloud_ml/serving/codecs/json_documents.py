"""JSON that came in: a document, and tensors out of its lists."""

import base64
import binascii
import json
from array import array
from itertools import chain
from typing import Any

import numpy as np
import orjson

from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Values
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.errors import BadRequest, Unsupported
from cloud_ml.serving.signatures import Shape, Signature, TensorSpec

_CODES = {
    dtypes.FLOAT: "f",
    dtypes.DOUBLE: "d",
    dtypes.INT8: "b",
    dtypes.UINT8: "B",
    dtypes.INT16: "h",
    dtypes.UINT16: "H",
    dtypes.INT32: "i",
    dtypes.UINT32: "I",
    dtypes.INT64: "q",
    dtypes.UINT64: "Q",
    dtypes.HALF: "f",
    dtypes.BFLOAT16: "f",
}
_REALS = frozenset({dtypes.FLOAT, dtypes.DOUBLE, dtypes.HALF, dtypes.BFLOAT16})
# Compared as types and not by `isinstance`, for which `true` is a number.
_INTEGERS: set[type] = {int}
_NUMBERS: set[type] = {float, int}
DEEPEST = 32
"""Lists inside of each other that a tensor may have."""
_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a truth value",
    type(None): "null",
}


def document(body: bytes, *keys: bytes) -> dict[str, Any]:
    """The object that a body holds, in which none of ``keys``, in their quotes, is there twice.

    Raises:
        BadRequest: where it is none.
    """
    made = parse_object(body)
    if body.count(b'"') != 2 * len(made):  # else its keys are all strings that there are
        check_once(body, *keys)
    return made


def check_once(body: bytes, *keys: bytes) -> None:
    """Refuse a body that has one of the keys twice in an object, which would change its meaning.

    Raises:
        BadRequest: with the key.
    """
    for key in keys:
        if body.count(key) > 1 or b"\\u00" in body:  # a letter may be spelled so, too
            _lenient(body)
            break


def parse_object(body: bytes) -> dict[str, Any]:
    """The object that a body holds. NaN, Infinity and -Infinity count as numbers, as in TensorFlow
    Serving.

    Raises:
        BadRequest: where it is none.
    """
    try:
        made = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # orjson has no such numbers; Python's reader, which has them, is several times slower.
        if b"NaN" not in body and b"Infinity" not in body:
            raise BadRequest(f"the body is not valid JSON: {error}") from error
        made = _lenient(body)
    if type(made) is not dict:
        raise BadRequest("the body is not a JSON object")
    return made


def _lenient(body: bytes) -> Any:
    """What Python's own reader makes of it; no key may be there twice in an object."""
    try:
        return json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        raise BadRequest(
            f"the body has {next(key for key in keys if keys.count(key) > 1)!r} twice in one object"
        )
    return made


def is_base64(value: Any) -> bool:
    """Whether this is how bytes are written: ``{"b64": "…"}``."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def tensor(value: Any, spec: TensorSpec, signature: Signature, where: str) -> tuple[Shape, Values]:
    """The tensor of an input, out of a value or lists of lists of values; ``where`` they stand.

    Raises:
        BadRequest: for ragged lists, values of another type, values out of range; with their place.
    """
    if type(value) is not list:
        return (), values([value], {type(value)}, spec, signature, where)
    shape, level = [len(value)], value
    while (
        len(level) == 1 and type(level[0]) is list and len(shape) < DEEPEST
    ):  # most often there is one row
        level = level[0]
        shape.append(len(level))
    kinds = set(map(type, level))
    while list in kinds:
        sizes = set(map(len, level)) if len(kinds) == 1 else ()
        if len(sizes) != 1 or len(shape) >= DEEPEST:
            raise BadRequest(f"{_uneven(value, where)}: {signature}")
        shape.append(sizes.pop())
        level = list(chain.from_iterable(level))
        kinds = set(map(type, level))
    return tuple(shape), values(level, kinds, spec, signature, where)


def native_code(dtype: DType) -> tuple[str, set[type]] | None:
    """The code of a Python array whose bytes are those of a tensor, and the types of the numbers
    that go into it.
    """
    code = _CODES.get(dtype)
    if code is None or array(code).itemsize != dtype.size:
        return None
    return code, _NUMBERS if dtype in _REALS else _INTEGERS


def values(
    flat: list[Any], kinds: set[type], spec: TensorSpec, signature: Signature, where: str
) -> Values:
    """The elements of a tensor, one after the other. ``kinds`` are their types in Python.

    Raises:
        BadRequest: where they are not what the input takes.
    """
    dtype = spec.dtype
    code = _CODES.get(dtype)
    if code is not None:
        allowed = _NUMBERS if dtype in _REALS else _INTEGERS
        if not kinds <= allowed:
            raise BadRequest(_foreign(flat, allowed, spec, signature, where))
        try:
            made = array(code, flat)
        except OverflowError as error:
            raise BadRequest(f"{where} has a value that is no {dtype}: {signature}") from error
        if dtype.numpy.itemsize != made.itemsize:
            return np.array(made).astype(dtype.numpy).tobytes()
        return made.tobytes()
    if dtype is dtypes.BOOL:
        if not kinds <= {bool}:
            raise BadRequest(_foreign(flat, {bool}, spec, signature, where))
        return bytes(flat)
    if dtype is dtypes.STRING:
        return _strings(flat, spec, signature, where)
    raise Unsupported(f"{dtype} has no form in JSON: {signature}")


def shape_values(shape: Shape, given: Values, dtype: DType) -> Values:
    """Strings are arrays, which know their shape; the rest is bytes."""
    return given.reshape(shape) if isinstance(given, np.ndarray) else given


def _strings(flat: list[Any], spec: TensorSpec, signature: Signature, where: str) -> Values:
    made = np.empty(len(flat), object)
    for place, value in enumerate(flat):
        if type(value) is str:
            try:
                made[place] = value.encode()
            except UnicodeEncodeError as error:
                raise BadRequest(f"{where} has text that is no Unicode") from error
        elif is_base64(value):
            made[place] = decode_base64(value["b64"], where)
        else:
            raise BadRequest(_foreign(flat, {str}, spec, signature, where))
    return made


def decode_base64(text: str, where: str) -> bytes:
    """The bytes of a base64 text, in the usual or the URL alphabet, with or without its padding."""
    text = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"{where} has a 'b64' that is no base64") from error


def _foreign(
    flat: list[Any], allowed: set[type], spec: TensorSpec, signature: Signature, where: str
) -> str:
    wrong = next(
        value
        for value in flat
        if type(value) not in allowed and not (str in allowed and is_base64(value))
    )
    kind = _KINDS.get(type(wrong), "a number")
    value_text = "" if kind == "null" else f" {_shortly(wrong)}"
    return f"{where} has {kind}{value_text}, and {spec.name!r} takes {spec.dtype}: {signature}"


def _shortly(value: Any) -> str:
    """The beginning of a value, as JSON: so it was sent."""
    text = json.dumps(value[:60] if type(value) is str else value, ensure_ascii=False)
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= 52 else f"{text[:50]}…"


def _uneven(value: Any, where: str, depth: int = 0) -> Shape | str:
    """The shape of lists of lists, or in words where they are not alike."""
    if type(value) is not list:
        return ()
    if depth > DEEPEST:
        return f"{where} is nested deeper than {DEEPEST}"
    if list not in set(map(type, value)):
        return (len(value),)
    first: Shape = ()
    for place, each in enumerate(value):
        shape = _uneven(each, f"{where}[{place}]", depth + 1)
        if isinstance(shape, str):
            return shape
        if place and shape != first:
            here, before = _describe_value(each, shape), _describe_value(value[0], first)
            return f"{where} is ragged: {where}[{place}] {here}, {where}[0] {before}"
        first = shape
    return (len(value), *first)


def _describe_value(value: Any, shape: Shape) -> str:
    return f"has shape {list(shape)}" if type(value) is list else f"is {str(value)[:50]}"
