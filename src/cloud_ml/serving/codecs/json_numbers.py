"""Many numbers as JSON, without a Python object for any of them.

An image as nested lists is 150,000 numbers: as Python floats they take 15 ms, through simdjson into
a buffer 3. The reader gives all numbers one after the other; that the lists around them are even is
seen by walking through them, or, where there are very many, from the text without its digits, which
has to be the one that such a shape has.

No text can deceive it: simdjson reads all of it first and refuses what is not valid JSON. Only an
object of one key, whose lists hold nothing but numbers, is taken, so each bracket and comma behind
the first bracket is one of these lists.
"""

import contextvars
from math import prod
from typing import Any, Literal

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
WALKED = 4096
"""Lists that are walked through; of more the text is looked at."""
DEEPEST = 32
"""Lists inside of each other that a tensor may have."""

_DIGITS = b"0123456789.eE+- \t\r\n"
_REALS = frozenset({dtypes.FLOAT, dtypes.DOUBLE, dtypes.HALF, dtypes.BFLOAT16})
_WHOLE = frozenset(
    {
        dtypes.INT8,
        dtypes.UINT8,
        dtypes.INT16,
        dtypes.UINT16,
        dtypes.INT32,
        dtypes.UINT32,
        dtypes.INT64,
    }
)
_FORMS = ("instances", "inputs")

Flat = np.ndarray[tuple[int], np.dtype[np.generic]]

_calm = contextvars.copy_context()
_calm.run(np.seterr, over="ignore")  # too large for a type is Infinity, as in TensorFlow Serving


class Numbers:
    """Reads bodies that hold nothing but the numbers of one input. For one thread."""

    def __init__(self) -> None:
        self._parser = simdjson.Parser()

    def read(self, body: bytes, dtype: DType, rank: int) -> tuple[str, Shape, Values] | None:
        """``instances`` or ``inputs``, the shape, the values; None where the body has to be
        looked at closer.
        """
        kind = _kind(dtype)
        if kind is None or not rank:
            return None
        try:
            read = self._parser.parse(body)
            if not isinstance(read, simdjson.Object) or len(read) != 1:
                return None
            (form,) = read.keys()
            if form not in _FORMS:  # a name with a zero in it is listed, and not found
                return None
            lists = read[form]
            if not isinstance(lists, simdjson.Array):
                return None
            shape = _shape(lists, body)
            if shape is None:
                return None
            flat = _flat(lists, kind)
            del lists, read
        except (ValueError, TypeError, RuntimeError):
            self._parser = simdjson.Parser()  # the old one may still be held by what was read
            return None
        made = self._cast(flat, dtype, len(body))
        return (form, shape, made) if made is not None and flat.size == prod(shape) else None

    def flat(self, text: bytes, dtype: DType) -> Flat | None:
        """All numbers of lists of lists, as this type; None where there is anything else."""
        kind = _kind(dtype)
        if kind is None:
            return None
        try:
            read = self._parser.parse(text)
            if not isinstance(read, simdjson.Array):
                return None
            flat = _flat(read, kind)
            del read
        except (ValueError, TypeError, RuntimeError):
            self._parser = simdjson.Parser()
            return None
        return self._cast(flat, dtype, len(text))

    def _cast(self, flat: Flat, dtype: DType, size: int) -> Flat | None:
        """As the type that is wanted; None where a whole number is none of it."""
        if size > KEPT:
            self._parser = simdjson.Parser()
        if flat.dtype == np.int64 and dtype in _WHOLE and dtype is not dtypes.INT64 and flat.size:
            bounds = np.iinfo(dtype.numpy)  # type: ignore[type-var]
            if flat.min() < bounds.min or flat.max() > bounds.max:
                return None
        made: Flat = _calm.run(flat.astype, dtype.numpy, copy=False)
        return made


def _kind(dtype: DType) -> Literal["d", "i"] | None:
    return "d" if dtype in _REALS else "i" if dtype in _WHOLE else None


def _flat(lists: simdjson.Array, kind: Literal["d", "i"]) -> Flat:
    return np.frombuffer(lists.as_buffer(of_type=kind), np.float64 if kind == "d" else np.int64)


def _shape(lists: simdjson.Array, body: bytes) -> Shape | None:
    """The shape of lists that hold nothing but numbers and lists, if they are even."""
    sizes: list[int] = []
    level: list[Any] = [lists]
    walked = 1
    while len(sizes) < DEEPEST:
        size = len(level[0])
        if not size or (len(level) > 1 and any(len(each) != size for each in level)):
            return None
        sizes.append(size)
        if not isinstance(level[0][0], simdjson.Array):
            # No list further down: where a first element is a number, all are, if there is no other
            # bracket.
            return tuple(sizes) if _brackets(body, walked + 1) == walked else None
        walked += size * len(level)
        if walked > WALKED:
            return shape_of(body[body.find(b"[") : body.rfind(b"]") + 1])
        level = [below for each in level for below in each]
    return None


def _brackets(body: bytes, most: int) -> int:
    """How many lists a text opens, counted up to so many; ``bytes.count`` takes four times as
    long.
    """
    count, at = 0, body.find(b"[")
    while at >= 0 and count < most:
        count += 1
        at = body.find(b"[", at + 1)
    return count


def shape_of(text: bytes) -> Shape | None:
    """The shape of lists of lists, if they are even.

    ``text`` need not be JSON: that is for the reader to say.
    """
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
