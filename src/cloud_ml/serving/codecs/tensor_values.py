"""Where the values of a ``TensorProto`` lie in its bytes, and how to read others that lie there."""

from math import prod
from typing import Any, NamedTuple

from cloud_ml.net.http2.stream import Received
from cloud_ml.serving import dtypes
from cloud_ml.serving.codecs import tensor_proto, value_lists, wire
from cloud_ml.serving.codecs.value_lists import Decoder
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Shape

MAX_STRINGS = 1024
"""Bytes of strings that are located: longer ones rarely have the same length twice."""
_CONTENT = 4
_WIDTHS = {wire.FIXED32: 4, wire.FIXED64: 8}


class Values(NamedTuple):
    """A tensor's type, and the place of its values. Without a decoder they are the bytes of the
    array.

    Other bytes at this place give another tensor of the same type and shape, unless the decoder
    refuses them.
    """

    dtype: DType
    shape: Shape
    start: int
    end: int
    decode: Decoder | None


def locate(data: Received, start: int, end: int, proto: Any, array: Array) -> Values | None:
    """The values of the message ``data[start:end]``; None where they are not in one place.

    ``proto`` is what the library read from it, and ``array`` what that means.

    Raises:
        wire.Malformed: for groups, which the library passes over.
    """
    fields = [each for each in wire.fields(data, start, end) if each[0] >= _CONTENT]
    if not array.size or len({each[:2] for each in fields}) != 1:
        return None
    dtype = dtypes.BY_NUMBER[proto.dtype]
    if fields[0][0] not in (_CONTENT, tensor_proto.payload_field(dtype)):
        return None
    values = array.size if fields[0][0] == _CONTENT else tensor_proto.value_count(dtype, proto)
    made = _place(dtype, array.shape, values, fields)
    if made is not None and values < array.size:
        made = made._replace(
            decode=value_lists.fill_list(made.decode, array.size - values, dtype.size)
        )
    return made if made is not None and _reads(made, data, array) else None


def _place(
    dtype: DType, shape: Shape, count: int, fields: list[tuple[int, int, int, int]]
) -> Values | None:
    """The place of ``count`` values in fields of one number and one kind."""
    number, kind, start, end = fields[0]
    if dtype is dtypes.STRING:
        return _strings(shape, count, fields)
    if len(fields) == 1:
        return Values(dtype, shape, start, end, _decoder(dtype, count, listed=number != _CONTENT))
    start, end = start - len(wire.key(number, kind)), fields[-1][3]
    if kind == wire.VARINT and dtype is not dtypes.BOOL:
        return Values(
            dtype, shape, start, end, value_lists.tagged_varints(dtype, number << 3, count)
        )
    if kind in _WIDTHS:
        width = _WIDTHS[kind]
        return Values(
            dtype,
            shape,
            start,
            end,
            value_lists.tagged_numbers(number << 3 | kind, width, count * dtype.size // width),
        )
    return None


def _strings(shape: Shape, count: int, fields: list[tuple[int, int, int, int]]) -> Values | None:
    number, kind, start, end = fields[0]
    tag = wire.key(number, kind)
    start -= len(tag) + len(wire.varint(end - start))
    end = fields[-1][3]
    if end - start > MAX_STRINGS or count != prod(shape):
        return None
    return Values(dtypes.STRING, shape, start, end, value_lists.strings(tag[0], shape, count))


def _decoder(dtype: DType, count: int, *, listed: bool) -> Decoder | None:
    """For values that are one field: ``tensor_content``, a packed list, or a single value."""
    if dtype is dtypes.BOOL:
        return value_lists.truth_values(count)
    return value_lists.packed_varints(dtype, count) if listed and not dtype.packed_raw else None


def _reads(values: Values, data: Received, array: Array) -> bool:
    """Whether the values are read as the library reads them."""
    given = bytes(data[values.start : values.end])
    decoded = values.decode(given) if values.decode is not None else given
    if values.dtype is dtypes.STRING:
        return (
            decoded is not None
            and not isinstance(decoded, bytes)
            and decoded.tolist() == array.tolist()
        )
    return decoded == array.tobytes()
