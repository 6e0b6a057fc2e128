"""Runs of a model that may show that its rows are not independent. They prove nothing, so they only take away.

A row alone is compared with the same row among others, at several places of batches of several sizes. Numbers with a
fraction may differ by ``EPSILONS`` times the precision of their type, times the largest number of the row: libraries
add in another order when a matrix has another size. Everything else must be equal.
"""

import time
from collections.abc import Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.runtimes.base import Array, Model
from cloud_ml.serving.signatures import Signature

EPSILONS = 1024
"""How many times the precision of a type two results of the same row may differ, relative to the row's largest."""
LOOSEST = 0.05
"""The most that they may differ whatever the type, relative to the row's largest."""
BATCHES = ((0, 2), (1, 3), (2, 5), (0, 8))
"""Place of the row, and rows of the batch, one run after the other."""
MOST_S = 2.0
"""Seconds after which no further batch is run."""
MOST_NUMBERS = 1 << 24
"""Numbers that the inputs of a batch may have."""


def difference(model: Model, signature: Signature, samples: Sequence[Sequence[Array]] = ()) -> str:
    """How a row differs among others from itself alone; empty where it does not, or cannot be tried.

    ``samples`` are inputs that the model is known to take; without any they are made up.
    """
    rows = _rows(signature, samples)
    if rows is None:
        return ""
    try:
        alone = [model.predict(signature, [each[place : place + 1] for each in rows]) for place in range(2)]
        again = model.predict(signature, [each[:1] for each in rows])
    except Exception:  # made-up inputs may be none that it takes
        return ""
    if told := _compare(signature, alone[0], again, 0, 1):
        return f"two runs of the same row differ: {told}"
    begun = time.perf_counter()
    for place, count in BATCHES:
        if time.perf_counter() - begun > MOST_S:
            break
        order = [1 + other % (len(rows[0]) - 1) for other in range(count)]
        order[place] = 0
        if told := _run(model, signature, [each[order] for each in rows], alone[0], place):
            return f"a row among {count} differs from the same row alone: {told}"
    return ""


def _run(model: Model, signature: Signature, inputs: Sequence[Array], alone: Sequence[Array], place: int) -> str:
    try:
        made = model.predict(signature, inputs)
    except Exception as error:
        return f"the model failed: {type(error).__name__}: {error}"[:300]
    return _compare(signature, alone, made, place, len(inputs[0]))


def _compare(signature: Signature, alone: Sequence[Array], made: Sequence[Array], place: int, rows: int) -> str:
    for spec, one, other in zip(signature.outputs, alone, made, strict=True):
        if not other.ndim or len(other) != rows or not one.ndim or len(one) != 1:
            return f"output {spec.name!r} has shape {list(other.shape)} for {rows} rows"
        if one.shape[1:] != other.shape[1:]:
            return f"output {spec.name!r} has another shape"
        if not _same(one[0], other[place]):
            return f"output {spec.name!r}"
    return ""


def _same(one: Array, other: Array) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    kind = one.dtype
    if kind.kind not in "fcV":
        return bool(np.array_equal(one, other))
    info: Any = np.finfo(kind) if kind.kind in "fc" else ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    precision = float(info.eps)
    wide = np.complex128 if kind.kind == "c" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    finite = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return False
    largest = max((float(np.abs(each[finite]).max(initial=0)) for each in (one, other)), default=0.0)
    allowed = min(EPSILONS * precision, LOOSEST) * largest
    return bool((np.abs(one[finite] - other[finite]) <= allowed).all())


def _rows(signature: Signature, samples: Sequence[Sequence[Array]]) -> list[Array] | None:
    """Some rows of each input: those of samples, or made-up ones."""
    usable = [each for each in samples if len({len(array) for array in each if array.ndim}) == 1]
    for sample in usable:
        alike = [each for each in usable if all(a.shape[1:] == b.shape[1:] for a, b in zip(each, sample, strict=True))]
        together = [np.concatenate(arrays)[:8] for arrays in zip(*alike, strict=True)]
        if len(together[0]) > 1:
            return together
    random = np.random.default_rng(0)
    made = []
    for spec in signature.inputs:
        if spec.shape is None or spec.dtype is dtypes.STRING or -1 in spec.shape[1:]:
            return None
        shape = (8, *spec.shape[1:])
        if prod(shape) > MOST_NUMBERS:
            return None
        made.append(_made_up(random, spec.dtype, shape))
    return made


def _made_up(random: np.random.Generator, dtype: dtypes.DType, shape: tuple[int, ...]) -> Array:
    if dtype.numpy.kind in "iub":  # an index into a table must be small
        return random.integers(0, 2, shape).astype(dtype.numpy)
    return np.asarray(random.standard_normal(shape), np.float64).astype(dtype.numpy)
