"""The element types of tensors: TensorFlow's numbers and names, the Open Inference Protocol's
names, numpy's dtypes.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type. There is one object for each, so they are compared with ``is``.

    ``field`` is the list of ``TensorProto`` that holds its values one by one; ``packed_raw`` says
    that this list, packed, has the same bytes as the array (little endian), so that it can be taken
    and given without a loop.
    """

    name: str
    number: int
    tensorflow: str
    oip: str | None
    numpy: np.dtype[np.generic]
    field: str
    packed_raw: bool = False

    @property
    def size(self) -> int:
        """Bytes of an element; 0 for strings, which have no fixed size."""
        return 0 if self is STRING else self.numpy.itemsize

    def __str__(self) -> str:
        return self.name


_TENSORFLOW = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF"}


def _of(
    name: str, number: int, oip: str | None, numpy: Any, field: str, *, raw: bool = False
) -> DType:
    tensorflow = "DT_" + _TENSORFLOW.get(name, name.upper())
    return DType(name, number, tensorflow, oip, np.dtype(numpy), field, raw)


FLOAT = _of("float32", 1, "FP32", np.float32, "float_val", raw=True)
DOUBLE = _of("float64", 2, "FP64", np.float64, "double_val", raw=True)
INT32 = _of("int32", 3, "INT32", np.int32, "int_val")
UINT8 = _of("uint8", 4, "UINT8", np.uint8, "int_val")
INT16 = _of("int16", 5, "INT16", np.int16, "int_val")
INT8 = _of("int8", 6, "INT8", np.int8, "int_val")
STRING = _of("string", 7, "BYTES", object, "string_val")
COMPLEX64 = _of("complex64", 8, None, np.complex64, "scomplex_val", raw=True)
INT64 = _of("int64", 9, "INT64", np.int64, "int64_val")
# A packed truth value is a varint of one byte, 0 or 1: the same as in numpy.
BOOL = _of("bool", 10, "BOOL", np.bool_, "bool_val", raw=True)
BFLOAT16 = _of("bfloat16", 14, "BF16", ml_dtypes.bfloat16, "half_val")
UINT16 = _of("uint16", 17, "UINT16", np.uint16, "int_val")
COMPLEX128 = _of("complex128", 18, None, np.complex128, "dcomplex_val", raw=True)
HALF = _of("float16", 19, "FP16", np.float16, "half_val")
UINT32 = _of("uint32", 22, "UINT32", np.uint32, "uint32_val")
UINT64 = _of("uint64", 23, "UINT64", np.uint64, "uint64_val")

ALL = (
    FLOAT,
    DOUBLE,
    INT32,
    UINT8,
    INT16,
    INT8,
    STRING,
    COMPLEX64,
    INT64,
    BOOL,
    BFLOAT16,
    UINT16,
    COMPLEX128,
    HALF,
    UINT32,
    UINT64,
)
BY_NUMBER = {each.number: each for each in ALL}
BY_NAME = {each.name: each for each in ALL}
BY_OIP = {each.oip: each for each in ALL if each.oip}
_BY_NUMPY = {each.numpy: each for each in ALL}


def of_array(array: np.ndarray[Any, Any]) -> DType:
    """The element type of an array; numpy's own string types count as strings.

    Raises:
        TypeError: for a type that no protocol here carries.
    """
    found = _BY_NUMPY.get(array.dtype)
    if found is None:
        if array.dtype.kind in "SU":
            return STRING
        raise TypeError(f"arrays of {array.dtype} have no form in the protocols of this server")
    return found
