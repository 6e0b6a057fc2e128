"""Requests and answers of ``tensorflow.serving.PredictionService`` as bytes, from and to plain
values.

The messages are few and fixed, so they are written here by hand: no library of tensors or of
messages is needed to ask a model something.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cloud_ml.errors import InvalidRequest, TransportError
from cloud_ml.sdk.models.arrays import as_array, to_plain
from cloud_ml.sdk.models.shortest import shortest

METHOD = "/tensorflow.serving.PredictionService/Predict"


class _Type(NamedTuple):
    number: int
    form: str
    """Of an element in packed bytes, as ``struct`` has it; empty for strings."""
    field: int
    """Of ``TensorProto``, for values one by one."""


TYPES: Mapping[str, _Type] = {
    "float32": _Type(1, "f", 5),
    "float64": _Type(2, "d", 6),
    "int32": _Type(3, "i", 7),
    "uint8": _Type(4, "B", 7),
    "int16": _Type(5, "h", 7),
    "int8": _Type(6, "b", 7),
    "string": _Type(7, "", 8),
    "int64": _Type(9, "q", 10),
    "bool": _Type(10, "?", 11),
    "uint16": _Type(17, "H", 7),
    "float16": _Type(19, "e", 13),
    "uint32": _Type(22, "I", 16),
    "uint64": _Type(23, "Q", 17),
}
_BFLOAT16 = 14
_SINGLE = (1, 19, _BFLOAT16)
"""Types whose values are no more than single precision."""
_BY_NUMBER = {one.number: (name, one) for name, one in TYPES.items()}
_OTHER_NAMES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "str": "string",
    "object": "string",
    "bytes": "string",
}
# TensorFlow's own bound (``TensorShape::MaxDimensions``).
_MOST_DIMS = 254


def predict_request(
    model: str, inputs: Mapping[str, Any], types: Mapping[str, str], signature: str | None = None
) -> bytes:
    """A ``PredictRequest``.

    Raises:
        InvalidRequest: Values are ragged, or do not fit their type; names the input.
    """
    spec = _bytes(1, model.encode()) + (_bytes(3, signature.encode()) if signature else b"")
    entries = (
        _bytes(2, _bytes(1, name.encode()) + _bytes(2, _tensor(name, value, types.get(name))))
        for name, value in inputs.items()
    )
    return _bytes(1, spec) + b"".join(entries)


def predict_response(content: bytes, *, short: bool = False) -> dict[str, Any]:
    """The outputs of a ``PredictResponse``, by name; ``short`` is as in ``shortest``.

    Raises:
        TransportError: It is none.
    """
    try:
        return dict(_output(value, short=short) for field, value in _fields(content) if field == 1)
    except (IndexError, ValueError, TypeError, AttributeError, LookupError, struct.error) as error:
        raise TransportError(f"the answer is no PredictResponse: {error}") from None


def type_named(name: str, field: str) -> str:
    """The name that we use of a type.

    Raises:
        InvalidRequest: There is no such type.
    """
    word = name.lower().removeprefix("dt_")
    word = _OTHER_NAMES.get(word, word)
    if word not in TYPES:
        raise InvalidRequest(
            f"{field} is {name!r}", field=field, value=name, allowed="one of " + ", ".join(TYPES)
        )
    return word


def _tensor(name: str, value: Any, given: str | None) -> bytes:
    array = as_array(value)
    own = getattr(getattr(array, "dtype", None), "name", None)
    kind = type_named(given, f"{name}_dtype") if given else own if own in TYPES else None
    # ``tensor_content`` is little-endian; a big-endian array takes the slower way by its values.
    if kind == own and kind is not None and array.dtype.str[0] in "<|":
        return _head(kind, array.shape) + _bytes(4, array.tobytes())
    value = to_plain(value)
    shape = _shape(name, value, 0)
    flat = list(_flat(value))
    kind = kind or _guess_type(flat)
    one = TYPES[kind]
    head = _head(kind, shape)
    try:
        if kind == "string":
            return head + b"".join(_bytes(one.field, _to_bytes(each)) for each in flat)
        if kind == "bool":
            flat = [_checked_bool(each) for each in flat]
        if one.form in "fde":
            flat = [float(each) for each in flat]
        return head + _bytes(4, struct.pack(f"<{len(flat)}{one.form}", *flat))
    except (struct.error, TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"{name} does not fit its type, {kind}: {error}",
            field=name,
            allowed=f"values of {kind}",
        ) from None


def _head(kind: str, shape: Iterable[int]) -> bytes:
    """Type and shape of a ``TensorProto``."""
    dims = b"".join(_bytes(2, _number(1, size)) for size in shape)
    return _number(1, TYPES[kind].number) + _bytes(2, dims)


def _shape(name: str, value: Any, depth: int) -> list[int]:
    if not isinstance(value, list):
        return []
    if depth >= _MOST_DIMS:
        raise InvalidRequest(
            f"{name} is nested too deep", field=name, allowed=f"at most {_MOST_DIMS} dimensions"
        )
    inner = [_shape(name, one, depth + 1) for one in value]
    if any(one != inner[0] for one in inner):
        raise InvalidRequest(
            f"{name} is ragged: its rows differ in shape", field=name, allowed="rows of one shape"
        )
    return [len(value), *(inner[0] if inner else [])]


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for one in value:
            yield from _flat(one)
    else:
        yield value


def _guess_type(flat: list[Any]) -> str:
    """The usual type of values that come without one."""
    if flat and all(isinstance(one, bool) for one in flat):
        return "bool"
    if flat and all(isinstance(one, int) for one in flat):
        return "int64"
    return "string" if any(isinstance(one, (str, dict)) for one in flat) else "float32"


def _checked_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, dict) and set(value) == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value.encode()


def _output(entry: bytes, *, short: bool) -> tuple[str, Any]:
    parts = dict(_fields(entry))
    number, shape, content, single = 0, list[int](), b"", list[Any]()
    for field, value in _fields(parts[2]):
        if field == 1:
            number = value
        elif field == 2:
            shape = [
                _to_signed(dict(_fields(dim)).get(1, 0))
                for kind, dim in _fields(value)
                if kind == 2
            ]
        elif field == 4:
            content = value
        elif field != 3:
            single.append((field, value))
    count = math.prod(shape)
    values = _values(number, content, single)
    if short and number in _SINGLE:
        values = list(shortest(values))
    if len(values) == 1 < count:  # TensorFlow writes equal values once
        values *= count
    if len(values) != count:
        raise ValueError(f"an output has {len(values)} values and the shape {shape}")
    return parts[1].decode(), _nest_values(iter(values), shape)


def _values(number: int, content: bytes, single: list[tuple[int, Any]]) -> list[Any]:
    if number == _BFLOAT16:
        bits = struct.unpack(f"<{len(content) // 2}H", content) if content else _integers(single)
        # A bfloat16 is the upper half of a float32.
        return [struct.unpack("<f", struct.pack("<I", one << 16))[0] for one in bits]
    _, one = _BY_NUMBER[number]
    if not one.form:
        return [_from_bytes(value) for _, value in single]
    if content:
        return list(
            struct.unpack(f"<{len(content) // struct.calcsize('<' + one.form)}{one.form}", content)
        )
    if one.form in "fd":
        size = struct.calcsize("<" + one.form)
        joined = b"".join(value for _, value in single)
        return list(struct.unpack(f"<{len(joined) // size}{one.form}", joined))
    found = _integers(single)
    convert: Callable[[int], Any] = (
        _to_signed if one.form in "ihbq" else bool if one.form == "?" else int
    )
    if one.form == "e":
        # ``half_val`` holds the bits of each number as an integer.
        return [struct.unpack("<e", struct.pack("<H", each))[0] for each in found]
    return [convert(each) for each in found]


def _integers(single: list[tuple[int, Any]]) -> list[int]:
    found: list[int] = []
    for _, value in single:
        if isinstance(value, int):
            found.append(value)
            continue
        place = 0
        while place < len(value):
            number, place = _varint(value, place)
            found.append(number)
    return found


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _from_bytes(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _nest_values(values: Iterator[Any], shape: list[int]) -> Any:
    return [_nest_values(values, shape[1:]) for _ in range(shape[0])] if shape else next(values)


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of the fields of a message: integers, or bytes."""
    place = 0
    while place < len(content):
        tag, place = _varint(content, place)
        kind = tag & 7
        if kind == 0:
            value, place = _varint(content, place)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise ValueError(f"a field has the wire type {kind}")
            size, place = _varint(content, place)
        # A slice beyond the end would be short without an error.
        if place + size > len(content):
            raise ValueError("it is cut short")
        yield tag >> 3, content[place : place + size]
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    # Ten bytes of 7 bits hold 64 bits; a negative int32 takes all ten.
    for shift in range(0, 70, 7):
        byte, place = content[place], place + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, place
    raise ValueError("a number is too long")


def _number(field: int, value: int) -> bytes:
    return _as_varint(field << 3) + _as_varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _as_varint(field << 3 | 2) + _as_varint(len(content)) + content


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value >= 128:
        found.append(value % 128 + 128)
        value //= 128
    found.append(value)
    return bytes(found)
