"""Functions along axes, and other orders of axes."""

from collections.abc import Sequence

from cloud_ml.serving.independence.operators.checks import axis_of, plain
from cloud_ml.serving.independence.tensor_info import (
    CONSTANT,
    Dimension,
    NotIndependent,
    TensorInfo,
    tensor,
)


def transpose_matrix(info: TensorInfo) -> TensorInfo:
    """A matrix, or several, with its last two dimensions exchanged."""
    rank = info.rank
    return transpose(info, [*range(rank - 2), rank - 1, rank - 2])


def transpose(info: TensorInfo, order: Sequence[int]) -> TensorInfo:
    """Dimensions in another order."""
    plain(info)
    if info.shape is None:
        return CONSTANT
    places = [axis_of(axis, info.rank) for axis in order]
    if sorted(places) != list(range(info.rank)):
        raise NotIndependent("an order that does not name each dimension once")
    return tensor([info.shape[place] for place in places])


def reduce(info: TensorInfo, axes: Sequence[int] | None, *, keep: bool) -> TensorInfo:
    """A sum, a mean, a maximum … over axes; None are all of them."""
    plain(info)
    if info.shape is None:
        return CONSTANT
    gone = {axis_of(axis, info.rank) for axis in (range(info.rank) if axes is None else axes)}
    if info.rows and 0 in gone:
        raise NotIndependent("it reduces over the rows")
    kept = [Dimension(1) if place in gone else size for place, size in enumerate(info.shape)]
    return tensor([size for place, size in enumerate(kept) if keep or place not in gone])


def along(info: TensorInfo, axis: int) -> TensorInfo:
    """A function of all numbers along an axis that keeps the shape: softmax, cumulative sums,
    sorting.
    """
    plain(info)
    if info.rows and axis_of(axis, info.rank) == 0:
        raise NotIndependent("it works along the rows")
    return TensorInfo(info.shape)
