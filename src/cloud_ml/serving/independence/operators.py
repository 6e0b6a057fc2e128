"""What operators make of tensors whose rows are apart, whatever the framework calls them.

Each function takes what is known of the inputs and returns what is known of the output. It raises
``NotIndependent`` unless the operator keeps rows apart for every value that the inputs may have.
"""

from collections.abc import Sequence
from itertools import zip_longest
from math import prod

from cloud_ml.serving.independence.tensor_info import (
    CONSTANT,
    ROWS,
    UNKNOWN,
    Dimension,
    NotIndependent,
    Shape,
    TensorInfo,
    constant,
    product,
    tensor,
    vector,
)


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the first.

    Raises:
        NotIndependent: where there is no such axis.
    """
    if not -rank <= axis < rank:
        raise NotIndependent(f"there is no axis {axis}")
    return axis % rank


def plain(*infos: TensorInfo) -> None:
    """Refuse values that depend on the number of rows: an answer made of them is another one for
    other callers.
    """
    if any(info.counts_rows for info in infos):
        raise NotIndependent("it computes with the number of rows")


def _broadcast(one: Dimension, two: Dimension) -> Dimension:
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
        joined = [_broadcast(one, two) for one, two in pairs]
    return tuple(reversed(joined))


def elementwise(infos: Sequence[TensorInfo]) -> TensorInfo:
    """Any function of one number of each input."""
    plain(*infos)
    shape = together(infos)
    return CONSTANT if shape is None else tensor(shape)


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


def reshape(
    info: TensorInfo, wanted: Sequence[Dimension], *, zero_copies: bool = False
) -> TensorInfo:
    """The same numbers in the same order, in another shape. -1 stands for what is left."""
    plain(info)
    if not info.rows:
        if any(each.of_rows for each in wanted):
            raise NotIndependent("a constant is divided into rows")
        return constant(_constant_sizes(info.shape, wanted))
    shape = info.shape or ()
    if zero_copies:
        wanted = [
            shape[place] if each == Dimension(0) and place < len(shape) else each
            for place, each in enumerate(wanted)
        ]
    if not wanted:
        raise NotIndependent("rows become a single number")
    first, rest = wanted[0], list(wanted[1:])
    if first.of_rows:
        return tensor((first, *_fill_dimension(info, first, rest)))
    if first != Dimension(-1):
        raise NotIndependent(f"the first dimension becomes {first}")
    return tensor((_left(shape, rest), *rest))


def _constant_sizes(shape: Shape | None, wanted: Sequence[Dimension]) -> list[int]:
    """The sizes of a constant; -1 for those that are not known."""
    sizes = [each.known or -1 for each in wanted]  # 0 may stand for another size
    others = prod(size for size in sizes if size > 0)
    if shape is None or Dimension(None) in wanted or Dimension(0) in wanted:
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


def concat(infos: Sequence[TensorInfo], axis: int) -> TensorInfo:
    """Tensors one after the other along an axis."""
    if all(info.values is not None and info.rank == 1 for info in infos):
        values = tuple(value for info in infos for value in info.values or ())
        return vector(values)
    plain(*infos)
    if not any(info.rows for info in infos):
        return CONSTANT
    rank = max(info.rank for info in infos)
    place = axis_of(axis, rank)
    if place == 0:
        raise NotIndependent("it puts tensors one after the other along the rows")
    if not all(info.rows and info.rank == rank for info in infos):
        raise NotIndependent("it puts a constant beside the rows")
    shape = list(together([TensorInfo(_without(info.shape or (), place)) for info in infos]) or ())
    sizes = [(info.shape or ())[place].known for info in infos]
    whole = sum(size for size in sizes if size is not None) if None not in sizes else None
    return tensor([*shape[:place], Dimension(whole), *shape[place:]])


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


def broadcast_to(info: TensorInfo, wanted: Sequence[Dimension]) -> TensorInfo:
    """A tensor, repeated until it has this shape."""
    plain(info)
    target = TensorInfo(tuple(wanted))
    if not info.rows and target.rows:
        return tensor(together([info, target]) or ())
    if (
        info.rows
        and len(wanted) == info.rank
        and not wanted[0].of_rows
        and wanted[0] != Dimension(1)
    ):
        raise NotIndependent(f"the first dimension becomes {wanted[0]}")
    if info.rows and len(wanted) == info.rank:
        target = TensorInfo((Dimension(1), *wanted[1:]))
    return elementwise([info, target])


def fill_shape(wanted: TensorInfo) -> TensorInfo:
    """One number everywhere, in a shape that is computed."""
    if wanted.values is None:
        raise NotIndependent("a shape is not known")
    return tensor(wanted.values)


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
            sizes[letter] = _broadcast(sizes[letter], size) if letter in sizes else size
    if len(letters) != 1 or sides[1][:1] not in letters or sides[1].count(sides[1][0]) > 1:
        raise NotIndependent("the rows are not the first dimension")
    if any(letter not in sizes for letter in sides[1]):
        raise NotIndependent(f"the equation {equation!r} does not fit")
    return tensor([sizes[letter] for letter in sides[1]])


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


def check_output(name: str, info: TensorInfo) -> None:
    """Refuse an output whose first dimension is not the rows, one by one.

    Raises:
        NotIndependent: with its name.
    """
    plain(info)
    if not info.rows or info.shape is None or info.shape[0] != ROWS:
        raise NotIndependent(f"output {name!r} does not have one entry for each row")
