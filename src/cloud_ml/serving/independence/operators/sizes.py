"""Numbers that are computed from the sizes of tensors."""

from collections.abc import Sequence

from cloud_ml.serving.independence.operators.broadcasting import elementwise
from cloud_ml.serving.independence.tensor_info import (
    UNKNOWN,
    Dimension,
    TensorInfo,
    product,
)


def arithmetic(kind: str, infos: Sequence[TensorInfo]) -> TensorInfo | None:
    """Sizes that are computed from sizes: None where these are no small integers, or it is not
    known how.
    """
    if len(infos) != 2 or not all(_holds_small_sizes(info) for info in infos):
        return None
    one, two = (info.values or () for info in infos)
    length = max(len(one), len(two))
    if {len(one), len(two)} - {1, length} or not one or not two:
        return None
    values = []
    for place in range(length):
        value = _compute_constant(kind, one[place % len(one)], two[place % len(two)])
        if value is None or not value.fits:
            return None
        values.append(value)
    shape = infos[0].shape if infos[0].rank >= infos[1].rank else infos[1].shape
    return TensorInfo((Dimension(length),) if shape else (), tuple(values))


def _holds_small_sizes(info: TensorInfo) -> bool:
    """Whether the values of a number or a vector are known and fit into 32 bits.

    Types of integers are not followed: beyond 32 bits an int32 wraps around and an int64 does not.
    """
    return info.values is not None and info.rank <= 1 and all(each.fits for each in info.values)


MOST_FOR_A_ROW = 1 << 15
"""The factor up to which a multiple of the number of rows is certain not to exceed 32 bits."""


def cast(info: TensorInfo) -> TensorInfo:
    """To integers of 32 or 64 bits: numbers that may not fit are forgotten."""
    if info.values is not None and all(value.fits for value in info.values):
        return info
    return elementwise([info])


def _compute_constant(kind: str, one: Dimension, two: Dimension) -> Dimension | None:
    if kind == "mul":
        return None if one.of_rows and two.of_rows else product((one, two))
    if _may_overflow(one) or _may_overflow(two):
        return None
    if kind == "div":
        return _divide(one, two)
    if kind == "add":
        return _add(one, two, 1)
    if kind == "sub":
        return _add(one, two, -1)
    return None


def _may_overflow(size: Dimension) -> bool:
    return size.of_rows and abs(size.factor or 0) > MOST_FOR_A_ROW


def _divide(one: Dimension, two: Dimension) -> Dimension | None:
    if two.of_rows or not two.factor:
        return None
    # Exact divisions only: of the others, ONNX's ``Div`` cuts towards zero and TensorFlow's
    # ``FloorDiv`` rounds down.
    if one.factor is not None and one.factor % two.factor == 0:
        return Dimension(one.factor // two.factor, one.of_rows)
    return None if one.of_rows else UNKNOWN


def _add(one: Dimension, two: Dimension, sign: int) -> Dimension | None:
    if one.of_rows != two.of_rows:  # rows and a constant: no multiple of the rows
        return None
    if one.factor is None or two.factor is None:
        return None if one.of_rows else UNKNOWN
    made = one.factor + sign * two.factor
    return Dimension(made, one.of_rows) if not one.of_rows or made > 0 else None
