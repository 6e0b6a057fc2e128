"""The same numbers in other shapes."""

from collections.abc import Sequence
from math import prod

from cloud_ml.serving.independence.operators.checks import axis_of, plain
from cloud_ml.serving.independence.tensor_info import (
    CONSTANT,
    UNKNOWN,
    Dimension,
    NotIndependent,
    Shape,
    TensorInfo,
    constant,
    product,
    tensor,
)


def reshape(
    info: TensorInfo, target: Sequence[Dimension], *, zero_copies: bool = False
) -> TensorInfo:
    """The same numbers in the same order, in another shape. -1 stands for what is left."""
    plain(info)
    if not info.rows:
        if any(each.of_rows for each in target):
            raise NotIndependent("a constant is divided into rows")
        return constant(_constant_sizes(info.shape, target))
    shape = info.shape or ()
    if zero_copies:
        target = [
            shape[place] if each == Dimension(0) and place < len(shape) else each
            for place, each in enumerate(target)
        ]
    if not target:
        raise NotIndependent("rows become a single number")
    first, rest = target[0], list(target[1:])
    if first.of_rows:
        return tensor((first, *_fill_dimension(info, first, rest)))
    if first != Dimension(-1):
        raise NotIndependent(f"the first dimension becomes {first}")
    return tensor((_left(shape, rest), *rest))


def _constant_sizes(shape: Shape | None, target: Sequence[Dimension]) -> list[int]:
    """The sizes of a constant; -1 for those that are not known."""
    sizes = [each.known or -1 for each in target]  # 0 may stand for another size
    others = prod(size for size in sizes if size > 0)
    if shape is None or Dimension(None) in target or Dimension(0) in target:
        return sizes
    whole = [each.known for each in shape]
    if None in whole or sizes.count(-1) != 1:
        return sizes
    rest = prod(each or 0 for each in whole) // others or -1
    return [size if size > 0 else rest for size in sizes]


def _left(shape: Shape, rest: Sequence[Dimension]) -> Dimension:
    """The first dimension, where it is what is left: each row must fill a whole number of places
    in it.
    """
    size = product(rest)
    if size.of_rows or not size.factor or size.factor < 0:
        raise NotIndependent("the first dimension becomes what is left of an unknown size")
    # The known factors alone: the others can only multiply what these give, so what divides these
    # divides the whole.
    certain = prod(each.factor for each in shape if each.factor is not None)
    if not certain or certain % size.factor:
        raise NotIndependent(f"{size.factor} numbers together may belong to different rows")
    whole = all(each.factor is not None for each in shape)
    return Dimension(certain // size.factor if whole else None, True)


def _fill_dimension(
    info: TensorInfo, first: Dimension, rest: Sequence[Dimension]
) -> list[Dimension]:
    """The other dimensions, with what stands for -1."""
    if Dimension(-1) not in rest:
        return list(rest)
    whole, others = (
        product(info.shape or ()),
        product((first, *(each for each in rest if each != Dimension(-1)))),
    )
    exact = whole.factor is not None and others.factor and whole.factor % others.factor == 0
    left = Dimension((whole.factor or 0) // (others.factor or 1)) if exact else UNKNOWN
    return [left if each == Dimension(-1) else each for each in rest]


def flatten(info: TensorInfo, axis: int) -> TensorInfo:
    """Two dimensions: all before the axis, and all from it on."""
    plain(info)
    if not info.rows:
        return CONSTANT
    rank = info.rank
    axis = rank if axis == rank else axis_of(axis, rank)
    if axis == 0:
        raise NotIndependent("all rows become one")
    shape = info.shape or ()
    return tensor((product(shape[:axis]), product(shape[axis:])))


def expand_dims(info: TensorInfo, axes: Sequence[int]) -> TensorInfo:
    """Dimensions of size 1 at these places of the result."""
    if info.shape is None:
        plain(info)
        return CONSTANT
    rank = info.rank + len(axes)
    places = {axis_of(axis, rank) for axis in axes}
    sizes = iter(info.shape)
    shape = tuple(Dimension(1) if place in places else next(sizes) for place in range(rank))
    if info.values is not None and rank == 1:
        return TensorInfo(shape, info.values)
    plain(info)
    return tensor(shape)


def squeeze(info: TensorInfo, axes: Sequence[int]) -> TensorInfo:
    """Without these dimensions, whose size is 1. None named: all that are 1, and the rows may
    be.
    """
    if info.shape is None:
        plain(info)
        return CONSTANT
    gone = {axis_of(axis, info.rank) for axis in axes}
    if info.rows and (0 in gone or not gone):
        raise NotIndependent("the dimension of the rows goes where there is one row")
    if not gone and info.shape != (Dimension(1),):
        plain(info)
        return CONSTANT
    gone = gone or {0}
    shape = tuple(size for place, size in enumerate(info.shape) if place not in gone)
    return TensorInfo(shape, info.values)


def fill_shape(shape: TensorInfo) -> TensorInfo:
    """One number everywhere, in a shape that is computed."""
    if shape.values is None:
        raise NotIndependent("a shape is not known")
    return tensor(shape.values)
