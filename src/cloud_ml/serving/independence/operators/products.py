"""Sums of products: matrices, Einstein's notation, convolutions and what is like them."""

from collections.abc import Sequence

from cloud_ml.serving.independence.operators.broadcasting import broadcast_dimension, together
from cloud_ml.serving.independence.operators.checks import plain
from cloud_ml.serving.independence.tensor_info import (
    CONSTANT,
    Dimension,
    NotIndependent,
    Shape,
    TensorInfo,
    tensor,
)


def matmul(one: TensorInfo, two: TensorInfo) -> TensorInfo:
    """The product of matrices, as numpy's ``matmul``."""
    plain(one, two)
    if not one.rows and not two.rows:
        return CONSTANT
    _check_product(one, two)
    one_shape, two_shape = one.shape or (), two.shape or ()
    if one.rank == 2 and one.rows:
        return tensor((one_shape[0], two_shape[1]))
    head = together([TensorInfo(one_shape[:-2]), TensorInfo(two_shape[:-2])]) or ()
    return tensor((*head, one_shape[-2], two_shape[-1]))


def _check_product(one: TensorInfo, two: TensorInfo) -> None:
    """Refuse a product of which a row of the result depends on several rows."""
    if one.rank < 2 or two.rank < 2:
        raise NotIndependent("a product with a vector")
    # The last dimension but one of the right side is summed over.
    if two.rows and two.rank < 3:
        raise NotIndependent("a product adds over the rows")
    # numpy's ``matmul`` puts the further dimensions of ``two`` first: the rows would come behind
    # them.
    if one.rows and one.rank == 2 and two.rank > 2:
        raise NotIndependent("a matrix of rows meets several matrices")
    if one.rows and two.rows and one.rank != two.rank:
        raise NotIndependent("tensors of different ranks are aligned by their last dimension")


def convolve(
    info: TensorInfo,
    kernel: TensorInfo,
    spatial: Sequence[Dimension],
    *,
    channels: int,
    kernel_channels: Dimension,
) -> TensorInfo:
    """A convolution or something like it: rows, channels and space; ``channels`` is the axis of
    these.
    """
    plain(info, kernel)
    if kernel.rows:
        raise NotIndependent("its kernel is made of rows")
    if info.rank < 3 or not info.rows:
        raise NotIndependent("its input has no rows")
    return tensor(_image(info.shape or (), channels, kernel_channels, spatial))


def pool(info: TensorInfo, spatial: Sequence[Dimension], *, channels: int) -> TensorInfo:
    """A maximum or mean of the neighbourhood of each place."""
    plain(info)
    if info.rank < 3 or not info.rows:
        raise NotIndependent("its input has no rows")
    shape = info.shape or ()
    return tensor(_image(shape, channels, shape[channels], spatial))


def _image(
    shape: Shape, channels: int, count: Dimension, spatial: Sequence[Dimension]
) -> list[Dimension]:
    return [shape[0], count, *spatial] if channels == 1 else [shape[0], *spatial, count]


def einsum(equation: str, infos: Sequence[TensorInfo]) -> TensorInfo:
    """A sum of products, by letters for the dimensions."""
    plain(*infos)
    sides = equation.replace(" ", "").split("->")
    terms = sides[0].split(",")
    if len(sides) != 2 or "." in equation or len(terms) != len(infos):
        raise NotIndependent(f"the equation {equation!r} is not one that is looked at")
    sizes: dict[str, Dimension] = {}
    letters = {term[:1] for term, info in zip(terms, infos, strict=True) if info.rows}
    for term, info in zip(terms, infos, strict=True):
        if info.rank != len(term):
            raise NotIndependent(f"the equation {equation!r} does not fit")
        # The letter of the rows anywhere else is a sum over them, a diagonal, or a constant with a
        # value for each of them.
        if letters & set(term[1:] if info.rows else term):
            raise NotIndependent("it sums over the rows, or pairs them with another dimension")
        for letter, size in zip(term, info.shape or (), strict=True):
            sizes[letter] = broadcast_dimension(sizes[letter], size) if letter in sizes else size
    if len(letters) != 1 or sides[1][:1] not in letters or sides[1].count(sides[1][0]) > 1:
        raise NotIndependent("the rows are not the first dimension")
    if any(letter not in sizes for letter in sides[1]):
        raise NotIndependent(f"the equation {equation!r} does not fit")
    return tensor([sizes[letter] for letter in sides[1]])
