"""Runs of a model that may show that its rows are not independent. They prove nothing, so they only
take away.

A row alone is compared with the same row among others, at several places of batches of several
sizes. Numbers with a fraction may differ by ``EPSILONS`` times the precision of their type, times
the largest number of the row: libraries add in another order when a matrix has another size.
Everything else must be equal.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from cloud_ml.serving import dtypes
from cloud_ml.serving.runtimes.base import Array, Model
from cloud_ml.serving.signatures import Signature

EPSILONS = 1024
"""How many times the precision of a type two results of the same row may differ, relative to the
row's largest.
"""
LOOSEST = 0.05
"""The most that they may differ whatever the type, relative to the row's largest."""
BATCHES = ((0, 2), (1, 3), (2, 5), (0, 8))
"""Place of the row, and rows of the batch, one run after the other."""
MOST_S = 2.0
"""Seconds after which no further batch is run."""
MOST_NUMBERS = 1 << 24
"""Numbers that the inputs of a batch may have."""
SIZES = (4, 8, 2, 3)
"""Sizes of made-up inputs where a signature leaves them open, one attempt after the other."""
TEXTS = ((b"a", b"b c", b"word", b"other words", b"a b c"), (b"0", b"1", b"2", b"30"))
"""Made-up texts: words, and numbers for models that read these."""


def difference(model: Model, signature: Signature, samples: Sequence[Sequence[Array]] = ()) -> str:
    """How a row differs among others from itself alone; empty where it does not, or cannot be
    tried.

    ``samples`` are inputs that the model is known to take; without any they are made up.
    """
    until = time.perf_counter() + MOST_S
    for rows in _candidates(signature, samples):
        finding = _probe_row(model, signature, rows, until)
        if finding is not None:
            return finding
        if time.perf_counter() > until:
            break
    return ""


def _probe_row(
    model: Model, signature: Signature, rows: Sequence[Array], until: float
) -> str | None:
    """How a row of these inputs differs among the others; None where the model takes none of
    them.
    """
    try:
        alone = [
            model.predict(signature, [each[place : place + 1] for each in rows])
            for place in range(2)
        ]
        # A model that is random differs from itself already; the reason then says so, and not that
        # rows matter.
        again = model.predict(signature, [each[:1] for each in rows])
    except Exception as error:
        try:
            model.predict(signature, rows)
        except Exception:  # made-up inputs may be none that it takes
            return None
        return f"the model failed for a row alone, and not among others: {type(error).__name__}: {error}"[
            :300
        ]
    if finding := _compare(signature, alone[0], again, 0, 1):
        return f"two runs of the same row differ: {finding}"
    for place, count in BATCHES:
        if time.perf_counter() > until:
            break
        # Row 0 of the samples at ``place``, and the others around it, as often as it takes.
        order = [1 + other % (len(rows[0]) - 1) for other in range(count)]
        order[place] = 0
        # Where row 0 stands elsewhere, the first place has row 1.
        expected = {place: alone[0], 0: alone[0 if place == 0 else 1]}
        if finding := _run(model, signature, [each[order] for each in rows], expected):
            return f"a row among {count} differs from the same row alone: {finding}"
    return ""


def _run(
    model: Model,
    signature: Signature,
    inputs: Sequence[Array],
    expected: Mapping[int, Sequence[Array]],
) -> str:
    """How rows of a batch differ from what is expected at their places."""
    try:
        made = model.predict(signature, inputs)
    except Exception as error:
        return f"the model failed: {type(error).__name__}: {error}"[:300]
    findings = (
        _compare(signature, alone, made, place, len(inputs[0])) for place, alone in expected.items()
    )
    return next((each for each in findings if each), "")


def _compare(
    signature: Signature, alone: Sequence[Array], made: Sequence[Array], place: int, rows: int
) -> str:
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
    # ``V`` is how numpy sees the types of ``ml_dtypes``, such as bfloat16.
    if kind.kind not in "fcV":
        return bool(np.array_equal(one, other))
    info: Any = np.finfo(kind) if kind.kind in "fc" else ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    precision = float(info.eps)
    wide = np.complex128 if kind.kind == "c" else np.float64
    one, other = one.astype(wide), other.astype(wide)
    finite = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return False
    largest = max(
        (float(np.abs(each[finite]).max(initial=0)) for each in (one, other)), default=0.0
    )
    allowed = min(EPSILONS * precision, LOOSEST) * largest
    return bool((np.abs(one[finite] - other[finite]) <= allowed).all())


def _candidates(signature: Signature, samples: Sequence[Sequence[Array]]) -> Iterator[list[Array]]:
    """Some rows of each input, one attempt after the other: those of samples, or else made-up
    ones.
    """
    if found := _of_samples(samples):
        yield found
        return
    is_open = any(-1 in (spec.shape or ())[1:] for spec in signature.inputs)
    is_text = any(spec.dtype is dtypes.STRING for spec in signature.inputs)
    for size in SIZES if is_open else SIZES[:1]:
        for texts in TEXTS if is_text else TEXTS[:1]:
            if made := _made_up_rows(signature, size, texts):
                yield made


def _of_samples(samples: Sequence[Sequence[Array]]) -> list[Array] | None:
    usable = [each for each in samples if len({len(array) for array in each if array.ndim}) == 1]
    for sample in usable:
        alike = [
            each
            for each in usable
            if all(a.shape[1:] == b.shape[1:] for a, b in zip(each, sample, strict=True))
        ]
        together = [np.concatenate(arrays)[:8] for arrays in zip(*alike, strict=True)]
        if len(together[0]) > 1:
            return together
    return None


def _made_up_rows(signature: Signature, size: int, texts: Sequence[bytes]) -> list[Array] | None:
    """Rows whose open sizes are this one, with these texts."""
    # The same rows each time a model is loaded, so that the decision is the same.
    random = np.random.default_rng(0)
    made = []
    for spec in signature.inputs:
        if spec.shape is None:
            return None
        shape = (8, *(size if each == -1 else each for each in spec.shape[1:]))
        if prod(shape) > MOST_NUMBERS:
            return None
        made.append(_made_up(random, spec.dtype, shape, texts))
    return made


def _made_up(
    random: np.random.Generator, dtype: dtypes.DType, shape: tuple[int, ...], texts: Sequence[bytes]
) -> Array:
    if dtype is dtypes.STRING:
        first = np.arange(shape[0]).reshape(
            -1, *[1] * (len(shape) - 1)
        )  # so that neighbours differ
        chosen = (first + random.integers(0, len(texts), shape[1:])) % len(texts)
        return np.asarray(np.array(texts, object)[chosen])
    if dtype.numpy.kind in "iub":  # an index into a table must be small
        return random.integers(0, 2, shape).astype(dtype.numpy)
    return np.asarray(random.standard_normal(shape), np.float64).astype(dtype.numpy)
