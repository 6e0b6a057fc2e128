"""The lists of values of a ``TensorProto`` as arrays, straight from their bytes.

Each decoder reads one form of one list: so many values of a type, packed or each with a tag of its
own. It returns None for bytes that it does not know for certain. The caller then asks the protobuf
library.
"""

from array import array
from collections.abc import Callable

import numpy as np

from cloud_ml.serving.codecs import wire
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.runtimes.base import Array
from cloud_ml.serving.signatures import Shape

Decoder = Callable[[bytes], bytes | Array | None]

FEW = 24
"""Values below which a loop over them costs less than numpy's calls."""
_LONGEST_VARINT = 10
_MASKS = {1: 0xFF, 2: 0xFFFF, 4: 0xFFFFFFFF, 8: 0xFFFFFFFFFFFFFFFF}
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def truth_values(count: int) -> Decoder:
    """Truth values of a byte each: other bytes than 0 and 1 mean different things in different
    fields.
    """

    def decode(data: bytes) -> bytes | None:
        return data if len(data) == count and not data.strip(b"\0\1") else None

    return decode


def tagged_numbers(tag: int, width: int, count: int) -> Decoder:
    """Numbers of fixed width, each after a tag of one byte."""

    def decode(data: bytes) -> bytes | None:
        if len(data) != count * (width + 1) or data[:: width + 1].strip(bytes((tag,))):
            return None
        return np.frombuffer(data, np.uint8).reshape(count, width + 1)[:, 1:].tobytes()

    return decode


def packed_varints(dtype: DType, count: int) -> Decoder:
    """Whole numbers of variable width, one after the other."""
    if count == 1:
        return _single_varint(dtype)
    size = dtype.size
    padding = bytes(size * count)

    def decode(data: bytes) -> bytes | None:
        if len(data) == count and data.isascii():  # a byte each
            if size == 1:
                return data
            made = bytearray(padding)
            made[::size] = data
            return bytes(made)
        values = _varints(data, count)
        return _pack_numbers(dtype, values) if values is not None else None

    return decode


def _single_varint(dtype: DType) -> Decoder:
    size = dtype.size
    most = 1 << (7 if size == 1 else 14)  # what fits into any type of this size

    def decode(data: bytes) -> bytes | None:
        if len(data) == 1:
            value = data[0]
            if value < 0x80:
                return value.to_bytes(size, "little")
        elif len(data) == 2:
            low, high = data
            value = low & 0x7F | high << 7
            if low >= 0x80 > high and value < most:
                return value.to_bytes(size, "little")
        values = _varints(data, 1)
        return _pack_numbers(dtype, values) if values is not None else None

    return decode


def tagged_varints(dtype: DType, tag: int, count: int) -> Decoder:
    """Whole numbers of variable width, each after a tag, which is such a number itself."""

    def decode(data: bytes) -> bytes | None:
        values = _varints(data, 2 * count)
        if values is None or any(each != tag for each in values[::2]):
            return None
        return _pack_numbers(dtype, values[1::2])

    return decode


def fill_list(decode: Decoder | None, missing: int, size: int) -> Decoder:
    """A list that is shorter than its tensor: the last value, of ``size`` bytes, stands for all
    that are missing.
    """

    def decode_filled(data: bytes) -> bytes | None:
        given = data if decode is None else decode(data)
        return given + given[-size:] * missing if isinstance(given, bytes) else None

    return decode_filled


def strings(tag: int, shape: Shape, count: int) -> Decoder:
    """Strings, each after a tag of one byte and its length."""

    def decode(data: bytes) -> Array | None:
        values: list[bytes] = []
        at, end = 0, len(data)
        while at < end and len(values) < count:
            if data[at] != tag:
                return None
            try:
                size, start = wire.read_varint(data, at + 1, end)
            except wire.Malformed:
                return None
            at = start + size
            values.append(data[start:at])
        if at != end or len(values) != count:
            return None
        made: Array = np.empty(count, object)
        made[:] = values
        return made.reshape(shape)

    return decode


def _varints(data: bytes, count: int) -> list[int] | None:
    """The unsigned 64-bit numbers that ``data`` holds, if they are ``count`` and none is of
    doubtful form.
    """
    if count > FEW:
        return _many_varints(data, count)
    values: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # The tenth byte has room for the 64th bit only: what more bits mean differs from parser
            # to parser.
            if shift == 63 and byte > 1:
                return None
            values.append(value)
            value = shift = 0
        else:
            shift += 7
            if shift > 63:
                return None
    return values if len(values) == count and not shift else None


def _many_varints(data: bytes, count: int) -> list[int] | None:
    given = np.frombuffer(data, np.uint8)
    (ends,) = np.nonzero(given < 0x80)
    if len(ends) != count or ends[-1] != len(given) - 1:
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    widths = ends - starts + 1
    if widths.max() >= _LONGEST_VARINT and (
        widths.max() > _LONGEST_VARINT or (given[ends[widths == _LONGEST_VARINT]] > 1).any()
    ):
        return None
    shifts = ((np.arange(len(given)) - np.repeat(starts, widths)) * 7).astype(np.uint64)
    made: list[int] = np.add.reduceat((given & 0x7F).astype(np.uint64) << shifts, starts).tolist()
    return made


def _pack_numbers(dtype: DType, values: list[int]) -> bytes | None:
    """Numbers as the library gives them: those of ``int_val`` have 32 bits, and have to fit into
    the type.
    """
    size = dtype.size
    if dtype.field in ("int_val", "half_val") and size < 4:
        values = [value & 0xFFFFFFFF for value in values]
        if dtype.numpy.kind == "i":
            # Negative numbers are sent in two's complement of 32 bits, at the upper end.
            least = 0x100000000 - (1 << (8 * size - 1))
            if any((1 << (8 * size - 1)) <= value < least for value in values):
                return None
        elif max(values) > _MASKS[size]:
            return None
    mask = _MASKS[size]
    if len(values) == 1:
        return (values[0] & mask).to_bytes(size, "little")
    return array(_CODES[size], [value & mask for value in values]).tobytes()
