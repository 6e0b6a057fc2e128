"""What operators make of tensors whose rows are apart, whatever the framework calls them.

Each function takes what is known of the inputs and returns what is known of the output. It raises ``Mixes`` unless
the operator keeps rows apart for every value that the inputs may have.
"""

from collections.abc import Sequence
from itertools import zip_longest
from math import prod

from cloud_ml.serving.independence.facts import (
    CONSTANT,
    ROWS,
    UNKNOWN,
    Dim,
    Fact,
    Mixes,
    Shape,
    constant,
    product,
    tensor,
    vector,
)


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the first.

    Raises:
        Mixes: where there is no such axis.
    """
    if not -rank <= axis < rank:
        raise Mixes(f"there is no axis {axis}")
    return axis % rank


def plain(*facts: Fact) -> None:
    """Refuse values that depend on the number of rows: an answer made of them is another one for other callers."""
    if any(fact.counts_rows for fact in facts):
        raise Mixes("it computes with the number of rows")


def _broadcast(one: Dim, two: Dim) -> Dim:
    if one.of_rows or two.of_rows:
        both = one.of_rows and two.of_rows
        if both and None not in (one.factor, two.factor) and one != two:  # they fit where there is one row
            raise Mixes("rows meet a multiple of the rows")
        return one if one.of_rows and (one.factor is not None or not both) else two
    if one.factor == 1 or two.factor is None:
        return two if one.factor in (1, None) else one
    return two if one.factor is None and two.factor != 1 else one


def together(facts: Sequence[Fact]) -> Shape | None:
    """The shape of tensors that are broadcast to each other, as numpy does it; None where it is not known.

    Raises:
        Mixes: where the rows of one could meet another dimension than the rows of another, or a constant that differs
            from row to row.
    """
    rank = max((fact.rank for fact in facts if fact.rows), default=-1)
    if rank < 0:
        return _constant_shape(facts)
    for fact in facts:
        if fact.rows and fact.rank != rank:
            raise Mixes("tensors of different ranks are aligned by their last dimension")
        if not fact.rows and fact.rank == rank and fact.shape is not None and fact.shape[0] != Dim(1):
            raise Mixes("a constant has a value for each place among the rows")
        if fact.rank > rank:
            raise Mixes("a constant has more dimensions than the rows")
    return _joined(facts)


def _constant_shape(facts: Sequence[Fact]) -> Shape | None:
    return None if any(fact.shape is None for fact in facts) else _joined(facts)


def _joined(facts: Sequence[Fact]) -> Shape:
    joined: list[Dim] = []
    for fact in facts:
        pairs = zip_longest(joined, reversed(fact.shape or ()), fillvalue=Dim(1))
        joined = [_broadcast(one, two) for one, two in pairs]
    return tuple(reversed(joined))


def elementwise(facts: Sequence[Fact]) -> Fact:
    """Any function of one number of each input."""
    plain(*facts)
    shape = together(facts)
    return CONSTANT if shape is None else tensor(shape)


def matmul(one: Fact, two: Fact) -> Fact:
    """The product of matrices, as numpy's ``matmul``."""
    plain(one, two)
    if not one.rows and not two.rows:
        return CONSTANT
    if one.rank < 2 or two.rank < 2:
        raise Mixes("a product with a vector")
    if two.rows and two.rank < 3:
        raise Mixes("a product adds over the rows")
    if one.rows and one.rank == 2 and two.rank > 2:
        raise Mixes("a matrix of rows meets several matrices")
    if one.rows and two.rows and one.rank != two.rank:
        raise Mixes("tensors of different ranks are aligned by their last dimension")
    heads = [Fact((one.shape or ())[:-2]), Fact((two.shape or ())[:-2])]
    if one.rank == 2 and one.rows:
        return tensor(((one.shape or ())[0], (two.shape or ())[1]))
    head = together(heads) or ()
    return tensor((*head, (one.shape or ())[-2], (two.shape or ())[-1]))


def swapped(fact: Fact) -> Fact:
    """A matrix, or several, with its last two dimensions exchanged."""
    rank = fact.rank
    return transpose(fact, [*range(rank - 2), rank - 1, rank - 2])


def transpose(fact: Fact, order: Sequence[int]) -> Fact:
    """Dimensions in another order."""
    plain(fact)
    if fact.shape is None:
        return CONSTANT
    places = [axis_of(axis, fact.rank) for axis in order]
    if sorted(places) != list(range(fact.rank)):
        raise Mixes("an order that does not name each dimension once")
    return tensor([fact.shape[place] for place in places])


def reduce(fact: Fact, axes: Sequence[int] | None, *, keep: bool) -> Fact:
    """A sum, a mean, a maximum … over axes; None are all of them."""
    plain(fact)
    if fact.shape is None:
        return CONSTANT
    gone = {axis_of(axis, fact.rank) for axis in (range(fact.rank) if axes is None else axes)}
    if fact.rows and 0 in gone:
        raise Mixes("it reduces over the rows")
    kept = [Dim(1) if place in gone else size for place, size in enumerate(fact.shape)]
    return tensor([size for place, size in enumerate(kept) if keep or place not in gone])


def along(fact: Fact, axis: int) -> Fact:
    """A function of all numbers along an axis that keeps the shape: softmax, cumulative sums, sorting."""
    plain(fact)
    if fact.rows and axis_of(axis, fact.rank) == 0:
        raise Mixes("it works along the rows")
    return Fact(fact.shape)


def reshape(fact: Fact, wanted: Sequence[Dim], *, zero_copies: bool = False) -> Fact:
    """The same numbers in the same order, in another shape. -1 stands for what is left."""
    plain(fact)
    if not fact.rows:
        if any(each.of_rows for each in wanted):
            raise Mixes("a constant is divided into rows")
        return constant(_constant_sizes(fact.shape, wanted))
    shape = fact.shape or ()
    if zero_copies:
        wanted = [shape[place] if each == Dim(0) and place < len(shape) else each for place, each in enumerate(wanted)]
    if not wanted:
        raise Mixes("rows become a single number")
    first, rest = wanted[0], list(wanted[1:])
    if first.of_rows:
        return tensor((first, *_filled(fact, first, rest)))
    if first != Dim(-1):
        raise Mixes(f"the first dimension becomes {first}")
    return tensor((_left(shape, rest), *rest))


def _constant_sizes(shape: Shape | None, wanted: Sequence[Dim]) -> list[int]:
    """The sizes of a constant; -1 for those that are not known."""
    sizes = [each.known or -1 for each in wanted]  # 0 may stand for another size
    others = prod(size for size in sizes if size > 0)
    whole = [] if shape is None else [each.known for each in shape]
    known = shape is not None and None not in whole and Dim(None) not in wanted and Dim(0) not in wanted
    if known and sizes.count(-1) == 1:
        return [size if size > 0 else prod(each or 0 for each in whole) // others or -1 for size in sizes]
    return sizes


def _left(shape: Shape, rest: Sequence[Dim]) -> Dim:
    """The first dimension, where it is what is left: each row must fill a whole number of places in it."""
    size = product(rest)
    if size.of_rows or not size.factor or size.factor < 0:
        raise Mixes("the first dimension becomes what is left of an unknown size")
    certain = prod(each.factor for each in shape if each.factor is not None)
    if not certain or certain % size.factor:
        raise Mixes(f"{size.factor} numbers together may belong to different rows")
    whole = all(each.factor is not None for each in shape)
    return Dim(certain // size.factor if whole else None, True)


def _filled(fact: Fact, first: Dim, rest: Sequence[Dim]) -> list[Dim]:
    """The other dimensions, with what stands for -1."""
    if Dim(-1) not in rest:
        return list(rest)
    whole, others = product(fact.shape or ()), product((first, *(each for each in rest if each != Dim(-1))))
    exact = whole.factor is not None and others.factor and whole.factor % others.factor == 0
    left = Dim((whole.factor or 0) // (others.factor or 1)) if exact else UNKNOWN
    return [left if each == Dim(-1) else each for each in rest]


def flatten(fact: Fact, axis: int) -> Fact:
    """Two dimensions: all before the axis, and all from it on."""
    plain(fact)
    if not fact.rows:
        return CONSTANT
    rank = fact.rank
    axis = rank if axis == rank else axis_of(axis, rank)
    if axis == 0:
        raise Mixes("all rows become one")
    shape = fact.shape or ()
    return tensor((product(shape[:axis]), product(shape[axis:])))


def expand_dims(fact: Fact, axes: Sequence[int]) -> Fact:
    """Dimensions of size 1 at these places of the result."""
    if fact.shape is None:
        plain(fact)
        return CONSTANT
    rank = fact.rank + len(axes)
    places = {axis_of(axis, rank) for axis in axes}
    sizes = iter(fact.shape)
    shape = tuple(Dim(1) if place in places else next(sizes) for place in range(rank))
    if fact.values is not None and rank == 1:
        return Fact(shape, fact.values)
    plain(fact)
    return tensor(shape)


def squeeze(fact: Fact, axes: Sequence[int]) -> Fact:
    """Without these dimensions, whose size is 1. None named: all that are 1, and the rows may be."""
    if fact.shape is None:
        plain(fact)
        return CONSTANT
    gone = {axis_of(axis, fact.rank) for axis in axes}
    if fact.rows and (0 in gone or not gone):
        raise Mixes("the dimension of the rows goes where there is one row")
    if not gone and fact.shape != (Dim(1),):
        plain(fact)
        return CONSTANT
    gone = gone or {0}
    shape = tuple(size for place, size in enumerate(fact.shape) if place not in gone)
    return Fact(shape, fact.values)


def concat(facts: Sequence[Fact], axis: int) -> Fact:
    """Tensors one after the other along an axis."""
    if all(fact.values is not None and fact.rank == 1 for fact in facts):
        values = tuple(value for fact in facts for value in fact.values or ())
        return vector(values)
    plain(*facts)
    if not any(fact.rows for fact in facts):
        return CONSTANT
    rank = max(fact.rank for fact in facts)
    place = axis_of(axis, rank)
    if place == 0:
        raise Mixes("it puts tensors one after the other along the rows")
    if not all(fact.rows and fact.rank == rank for fact in facts):
        raise Mixes("it puts a constant beside the rows")
    shape = list(together([Fact(_without(fact.shape or (), place)) for fact in facts]) or ())
    sizes = [(fact.shape or ())[place].known for fact in facts]
    whole = sum(size for size in sizes if size is not None) if None not in sizes else None
    return tensor([*shape[:place], Dim(whole), *shape[place:]])


def _without(shape: Shape, place: int) -> Shape:
    return (*shape[:place], *shape[place + 1 :])


def part(fact: Fact, axis: int, size: Dim = UNKNOWN) -> Fact:
    """Some of an axis: a slice, a part of a split, a padding, chosen places."""
    plain(fact)
    if fact.shape is None:
        return CONSTANT
    place = axis_of(axis, fact.rank)
    if fact.rows and place == 0:
        raise Mixes("it takes some of the rows")
    return tensor([*fact.shape[:place], size, *fact.shape[place + 1 :]])


def gather(data: Fact, places: Fact, axis: int) -> Fact:
    """Entries of ``data`` along an axis, at the numbers in ``places``."""
    if data.values is not None and data.rank == 1:
        return _gather_values(data, places)
    plain(data, places)
    if not data.rows and not places.rows:
        return CONSTANT
    if data.rows and places.rows:
        raise Mixes("rows are chosen by other rows")
    place = axis_of(axis, data.rank)
    if data.rows and place == 0:
        raise Mixes("it takes some of the rows")
    if places.rows and place != 0:
        raise Mixes("the rows are not the first dimension")
    if places.shape is None:
        raise Mixes("the rank of a tensor is not known")
    shape = data.shape or ()
    return tensor((*shape[:place], *places.shape, *shape[place + 1 :]))


def _gather_values(data: Fact, places: Fact) -> Fact:
    values = data.values or ()
    if places.rows:
        plain(data)
        return tensor(places.shape or ())
    chosen = tuple(values[axis_of(place, len(values))] for place in places.integers())
    return Fact(places.shape, chosen)


def choose_along(data: Fact, places: Fact, axis: int) -> Fact:
    """Entries along an axis, at numbers that every place has for itself: ``gather_elements``."""
    plain(data, places)
    if not data.rows or not places.rows or data.rank != places.rank or axis_of(axis, data.rank) == 0:
        raise Mixes("it takes some of the rows")
    if data.shape is None or places.shape is None or data.shape[0].factor is None or data.shape[0] != places.shape[0]:
        raise Mixes("it may take entries of another row")
    return Fact(places.shape)


def broadcast_to(fact: Fact, wanted: Sequence[Dim]) -> Fact:
    """A tensor, repeated until it has this shape."""
    plain(fact)
    target = Fact(tuple(wanted))
    if not fact.rows and target.rows:
        return tensor(together([fact, target]) or ())
    if fact.rows and len(wanted) == fact.rank and not wanted[0].of_rows and wanted[0] != Dim(1):
        raise Mixes(f"the first dimension becomes {wanted[0]}")
    if fact.rows and len(wanted) == fact.rank:
        target = Fact((Dim(1), *wanted[1:]))
    return elementwise([fact, target])


def filled(wanted: Fact) -> Fact:
    """One number everywhere, in a shape that is computed."""
    if wanted.values is None:
        raise Mixes("a shape is not known")
    return tensor(wanted.values)


def convolve(fact: Fact, kernel: Fact, spatial: Sequence[Dim], *, channels: int, kernel_channels: Dim) -> Fact:
    """A convolution or something like it: rows, channels and space; ``channels`` is the axis of these."""
    plain(fact, kernel)
    if kernel.rows:
        raise Mixes("its kernel is made of rows")
    if fact.rank < 3 or not fact.rows:
        raise Mixes("its input has no rows")
    return tensor(_image(fact.shape or (), channels, kernel_channels, spatial))


def pool(fact: Fact, spatial: Sequence[Dim], *, channels: int) -> Fact:
    """A maximum or mean of the neighbourhood of each place."""
    plain(fact)
    if fact.rank < 3 or not fact.rows:
        raise Mixes("its input has no rows")
    shape = fact.shape or ()
    return tensor(_image(shape, channels, shape[channels], spatial))


def _image(shape: Shape, channels: int, count: Dim, spatial: Sequence[Dim]) -> list[Dim]:
    return [shape[0], count, *spatial] if channels == 1 else [shape[0], *spatial, count]


def einsum(equation: str, facts: Sequence[Fact]) -> Fact:
    """A sum of products, by letters for the dimensions."""
    plain(*facts)
    sides = equation.replace(" ", "").split("->")
    terms = sides[0].split(",")
    if len(sides) != 2 or "." in equation or len(terms) != len(facts):
        raise Mixes(f"the equation {equation!r} is not one that is looked at")
    sizes: dict[str, Dim] = {}
    letters = {term[:1] for term, fact in zip(terms, facts, strict=True) if fact.rows}
    for term, fact in zip(terms, facts, strict=True):
        if fact.rank != len(term):
            raise Mixes(f"the equation {equation!r} does not fit")
        if letters & set(term[1:] if fact.rows else term):
            raise Mixes("it sums over the rows, or pairs them with another dimension")
        for letter, size in zip(term, fact.shape or (), strict=True):
            sizes[letter] = _broadcast(sizes[letter], size) if letter in sizes else size
    if len(letters) != 1 or sides[1][:1] not in letters or sides[1].count(sides[1][0]) > 1:
        raise Mixes("the rows are not the first dimension")
    if any(letter not in sizes for letter in sides[1]):
        raise Mixes(f"the equation {equation!r} does not fit")
    return tensor([sizes[letter] for letter in sides[1]])


def arithmetic(kind: str, facts: Sequence[Fact]) -> Fact | None:
    """Sizes that are computed from sizes: None where these are no small integers, or it is not known how."""
    if len(facts) != 2 or any(fact.values is None or fact.rank > 1 for fact in facts):
        return None
    if not all(value.fits for fact in facts for value in fact.values or ()):
        return None
    one, two = (fact.values or () for fact in facts)
    length = max(len(one), len(two))
    if {len(one), len(two)} - {1, length} or not one or not two:
        return None
    values = [_computed(kind, one[place % len(one)], two[place % len(two)]) for place in range(length)]
    if any(value is None or not value.fits for value in values):
        return None
    shape = facts[0].shape if facts[0].rank >= facts[1].rank else facts[1].shape
    return Fact((Dim(length),) if shape else (), tuple(value for value in values if value is not None))


MOST_FOR_A_ROW = 1 << 15
"""The factor up to which a multiple of the number of rows is certain not to exceed 32 bits."""


def cast(fact: Fact) -> Fact:
    """To integers of 32 or 64 bits: numbers that may not fit are forgotten."""
    if fact.values is not None and all(value.fits for value in fact.values):
        return fact
    return elementwise([fact])


def _computed(kind: str, one: Dim, two: Dim) -> Dim | None:
    if kind == "mul":
        return None if one.of_rows and two.of_rows else product((one, two))
    if any(each.of_rows and abs(each.factor or 0) > MOST_FOR_A_ROW for each in (one, two)):
        return None
    if kind == "div" and not two.of_rows and two.factor:
        if one.factor is not None and one.factor % two.factor == 0:
            return Dim(one.factor // two.factor, one.of_rows)
        return None if one.of_rows else UNKNOWN
    if kind in ("add", "sub") and one.of_rows == two.of_rows:
        if one.factor is None or two.factor is None:
            return None if one.of_rows else UNKNOWN
        made = one.factor + (two.factor if kind == "add" else -two.factor)
        return Dim(made, one.of_rows) if not one.of_rows or made > 0 else None
    return None


def check_output(name: str, fact: Fact) -> None:
    """Refuse an output whose first dimension is not the rows, one by one.

    Raises:
        Mixes: with its name.
    """
    plain(fact)
    if not fact.rows or fact.shape is None or fact.shape[0] != ROWS:
        raise Mixes(f"output {name!r} does not have one entry for each row")
