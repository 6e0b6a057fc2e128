"""Functions of one number of each tensor, which are broadcast to each other."""

from collections.abc import Sequence
from itertools import zip_longest

from cloud_ml.serving.independence.operators.checks import plain
from cloud_ml.serving.independence.tensor_info import (
    CONSTANT,
    Dimension,
    NotIndependent,
    Shape,
    TensorInfo,
    tensor,
)


def broadcast_dimension(one: Dimension, two: Dimension) -> Dimension:
    """The size of two dimensions that are broadcast to each other.

    Raises:
        NotIndependent: where one request may have an answer, and several together none.
    """
    if one.of_rows or two.of_rows:
        # For one row the two fit each other, and TensorFlow's ``Equal`` has an answer even where
        # they do not (``incompatible_shape_error``).
        both = one.of_rows and two.of_rows
        if (
            both and None not in (one.factor, two.factor) and one != two
        ):  # they fit where there is one row
            raise NotIndependent("rows meet a multiple of the rows")
        return one if one.of_rows and (one.factor is not None or not both) else two
    if one.factor == 1 or two.factor is None:
        return two if one.factor in (1, None) else one
    return two if one.factor is None and two.factor != 1 else one


def together(infos: Sequence[TensorInfo]) -> Shape | None:
    """The shape of tensors that are broadcast to each other, as numpy does it; None where it is not
    known.

    Raises:
        NotIndependent: where the rows of one could meet another dimension than the rows of another,
            or a constant that differs from row to row.
    """
    rank = max((info.rank for info in infos if info.rows), default=-1)
    if rank < 0:
        return _constant_shape(infos)
    for info in infos:
        if info.rows and info.rank != rank:
            raise NotIndependent("tensors of different ranks are aligned by their last dimension")
        if (
            not info.rows
            and info.rank == rank
            and info.shape is not None
            and info.shape[0] != Dimension(1)
        ):
            raise NotIndependent("a constant has a value for each place among the rows")
        if info.rank > rank:
            raise NotIndependent("a constant has more dimensions than the rows")
    return _broadcast_shapes(infos)


def _constant_shape(infos: Sequence[TensorInfo]) -> Shape | None:
    return None if any(info.shape is None for info in infos) else _broadcast_shapes(infos)


def _broadcast_shapes(infos: Sequence[TensorInfo]) -> Shape:
    joined: list[Dimension] = []
    for info in infos:
        pairs = zip_longest(joined, reversed(info.shape or ()), fillvalue=Dimension(1))
        joined = [broadcast_dimension(one, two) for one, two in pairs]
    return tuple(reversed(joined))


def elementwise(infos: Sequence[TensorInfo]) -> TensorInfo:
    """Any function of one number of each input."""
    plain(*infos)
    shape = together(infos)
    return CONSTANT if shape is None else tensor(shape)


def broadcast_to(info: TensorInfo, shape: Sequence[Dimension]) -> TensorInfo:
    """A tensor, repeated until it has this shape."""
    plain(info)
    target = TensorInfo(tuple(shape))
    if not info.rows and target.rows:
        return tensor(together([info, target]) or ())
    if info.rows and len(shape) == info.rank and not shape[0].of_rows and shape[0] != Dimension(1):
        raise NotIndependent(f"the first dimension becomes {shape[0]}")
    if info.rows and len(shape) == info.rank:
        target = TensorInfo((Dimension(1), *shape[1:]))
    return elementwise([info, target])
