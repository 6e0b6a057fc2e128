"""Many numbers as JSON, without a Python object for any of them.

An image as nested lists is 150,000 numbers: as Python floats they take 15 ms, through simdjson into a buffer 4. The
reader gives all numbers one after the other; that the lists around them are even is seen from the text without
its digits, which has to be the one that such a shape has.
"""

import re
from typing import Literal

import numpy as np
import simdjson

from cloud_ml.serving import dtypes
from cloud_ml.serving.batching import Values
from cloud_ml.serving.dtypes import DType
from cloud_ml.serving.signatures import Shape

WORTH = 1024
"""Bytes of a body from which on it pays."""
KEPT = 8 << 20
"""A reader keeps memory for what it read: one that read more is let go."""

_HEAD = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"(instances|inputs)"[ \t\r\n]*:[ \t\r\n]*(?=\[)')
_DIGITS = b"0123456789.eE+- \t\r\n"
_REALS = frozenset({dtypes.FLOAT, dtypes.DOUBLE, dtypes.HALF, dtypes.BFLOAT16})
_WHOLE = frozenset({dtypes.INT8, dtypes.UINT8, dtypes.INT16, dtypes.UINT16, dtypes.INT32, dtypes.UINT32, dtypes.INT64})


class Numbers:
    """Reads bodies that hold nothing but the numbers of one input. For one thread."""

    def __init__(self) -> None:
        self._parser = simdjson.Parser()

    def read(self, body: bytes, dtype: DType, rank: int) -> tuple[str, Shape, Values] | None:
        """``instances`` or ``inputs``, the shape, the values; None where the body has to be looked at closer."""
        if dtype not in _REALS and dtype not in _WHOLE:
            return None
        head = _HEAD.match(body)
        stop = body.rfind(b"}")
        if head is None or body[stop + 1 :].strip():
            return None
        text = body[head.end() : stop].rstrip()
        shape = shape_of(text, rank)
        flat = self.flat(text, dtype) if shape is not None else None
        if flat is None or shape is None:
            return None
        if shape[-1] < 0:
            shape = (*shape[:-1], len(flat))
        return (head[1].decode(), shape, flat) if flat.size == np.prod(shape, dtype=np.int64) else None

    def flat(self, text: bytes, dtype: DType) -> "np.ndarray[tuple[int], np.dtype[np.generic]] | None":
        """All numbers of lists of lists, as this type; None where there is anything else."""
        if dtype in _REALS:
            kind: Literal["d", "i"] = "d"
        elif dtype in _WHOLE:
            kind = "i"
        else:
            return None
        try:
            read = self._parser.parse(text)
            if not isinstance(read, simdjson.Array):
                return None
            flat = np.frombuffer(read.as_buffer(of_type=kind), np.float64 if kind == "d" else np.int64)
            del read
        except (ValueError, TypeError, RuntimeError):
            self._parser = simdjson.Parser()  # the old one may still be held by what was read
            return None
        if len(text) > KEPT:
            self._parser = simdjson.Parser()
        if kind == "i" and dtype is not dtypes.INT64 and flat.size:
            bounds = np.iinfo(dtype.numpy)  # type: ignore[type-var]
            if flat.min() < bounds.min or flat.max() > bounds.max:
                return None
        with np.errstate(over="ignore"):  # too large for this type is Infinity, as in TensorFlow Serving
            return flat.astype(dtype.numpy, copy=False)


def shape_of(text: bytes, rank: int) -> Shape | None:
    """The shape of lists of lists, if they are even; -1 for how many numbers the only innermost list has.

    ``text`` need not be JSON: that is for the reader to say.
    """
    if not rank or not text.startswith(b"["):
        return None
    if text.startswith(b"[" * rank) and text.endswith(b"]" * rank) and text.find(b"[", rank) < 0:
        return (*(1 for _ in range(rank - 1)), -1)
    bones = text.translate(None, _DIGITS)
    depth = len(bones) - len(bones.lstrip(b"["))
    end = bones.find(b"]")
    sizes, element = [end - depth + 1], b"[" + b"," * (end - depth) + b"]"
    for level in range(1, depth):
        end = bones.find(b"]" * (level + 1))
        length = end + level + 1 - (depth - level - 1)  # of a list of this level
        count, odd = divmod(length - 1, len(element) + 1)
        if end < 0 or odd or count < 1:
            return None
        sizes.append(count)
        element = b"[" + b",".join([element] * count) + b"]"
    return tuple(reversed(sizes)) if bones == element else None
