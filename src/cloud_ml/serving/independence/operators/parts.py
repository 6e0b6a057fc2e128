"""Tensors put together, and parts of tensors."""

from collections.abc import Sequence

from cloud_ml.serving.independence.operators.broadcasting import together
from cloud_ml.serving.independence.operators.checks import axis_of, plain
from cloud_ml.serving.independence.tensor_info import (
    CONSTANT,
    UNKNOWN,
    Dimension,
    NotIndependent,
    Shape,
    TensorInfo,
    tensor,
    vector,
)


def concat(infos: Sequence[TensorInfo], axis: int) -> TensorInfo:
    """Tensors one after the other along an axis."""
    if all(info.values is not None and info.rank == 1 for info in infos):
        return vector(tuple(value for info in infos for value in info.values or ()))
    plain(*infos)
    if not any(info.rows for info in infos):
        return CONSTANT
    return _concat_rows(infos, axis)


def _concat_rows(infos: Sequence[TensorInfo], axis: int) -> TensorInfo:
    """Tensors of which at least one has rows."""
    rank = max(info.rank for info in infos)
    place = axis_of(axis, rank)
    if place == 0:
        raise NotIndependent("it puts tensors one after the other along the rows")
    if not all(info.rows and info.rank == rank for info in infos):
        raise NotIndependent("it puts a constant beside the rows")
    shapes = [info.shape or () for info in infos]
    others = together([TensorInfo(_without(shape, place)) for shape in shapes]) or ()
    length = _total([shape[place] for shape in shapes])
    return tensor([*others[:place], length, *others[place:]])


def _total(sizes: Sequence[Dimension]) -> Dimension:
    """The sum of sizes that do not depend on the rows; unknown where one is not known."""
    total = 0
    for size in sizes:
        if size.known is None:
            return UNKNOWN
        total += size.known
    return Dimension(total)


def _without(shape: Shape, place: int) -> Shape:
    return (*shape[:place], *shape[place + 1 :])


def part(info: TensorInfo, axis: int, size: Dimension = UNKNOWN) -> TensorInfo:
    """Some of an axis: a slice, a part of a split, a padding, chosen places."""
    plain(info)
    if info.shape is None:
        return CONSTANT
    place = axis_of(axis, info.rank)
    if info.rows and place == 0:
        raise NotIndependent("it takes some of the rows")
    return tensor([*info.shape[:place], size, *info.shape[place + 1 :]])


def gather(data: TensorInfo, places: TensorInfo, axis: int) -> TensorInfo:
    """Entries of ``data`` along an axis, at the numbers in ``places``."""
    if data.values is not None and data.rank == 1:
        return _gather_values(data, places)
    plain(data, places)
    if not data.rows and not places.rows:
        return CONSTANT
    if data.rows and places.rows:
        raise NotIndependent("rows are chosen by other rows")
    place = axis_of(axis, data.rank)
    if data.rows and place == 0:
        raise NotIndependent("it takes some of the rows")
    if places.rows and place != 0:
        raise NotIndependent("the rows are not the first dimension")
    if places.shape is None:
        raise NotIndependent("the rank of a tensor is not known")
    shape = data.shape or ()
    return tensor((*shape[:place], *places.shape, *shape[place + 1 :]))


def _gather_values(data: TensorInfo, places: TensorInfo) -> TensorInfo:
    values = data.values or ()
    if places.rows:
        plain(data)
        return tensor(places.shape or ())
    chosen = tuple(values[axis_of(place, len(values))] for place in places.integers())
    return TensorInfo(places.shape, chosen)


def choose_along(data: TensorInfo, places: TensorInfo, axis: int) -> TensorInfo:
    """Entries along an axis, at numbers that every place has for itself: ``gather_elements``."""
    plain(data, places)
    # Entries are paired by their places, so both need as many places for each row, and it must be
    # known how many.
    if (
        not data.rows
        or not places.rows
        or data.rank != places.rank
        or axis_of(axis, data.rank) == 0
    ):
        raise NotIndependent("it takes some of the rows")
    if (
        data.shape is None
        or places.shape is None
        or data.shape[0].factor is None
        or data.shape[0] != places.shape[0]
    ):
        raise NotIndependent("it may take entries of another row")
    return TensorInfo(places.shape)
