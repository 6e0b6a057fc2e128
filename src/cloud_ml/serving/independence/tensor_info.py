"""What an analysis knows of a tensor: its shape, whether its rows are apart, and small integers in
it.

The claim of a tensor with rows: its buffer is as many equal parts in sequence as the request has
rows, and each part depends on its own row only. Its first dimension is then a multiple of the
number of rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

MOST_VALUES = 64
"""Integers of a constant that are remembered: enough for shapes, axes and paddings."""
MOST_DIMENSIONS = 254
"""Dimensions of a tensor that is looked at, as in TensorFlow; other frameworks have fewer."""

LARGEST = (1 << 31) - 1
"""The largest number that is computed with: the same in integers of 32 and of 64 bits."""
LARGEST_TENSOR = (1 << 63) - 1
"""The largest number of entries of a tensor."""


class NotIndependent(Exception):
    """Rows may influence each other, or it is not known that they do not. The message is the
    reason.
    """


class Dimension(NamedTuple):
    """A size: ``factor``, or ``factor`` times the number of rows.

    None is a factor that is not known, but the same for all calls that may run together.
    """

    factor: int | None
    of_rows: bool = False

    @property
    def fits(self) -> bool:
        """Whether it is the same number in integers of 32 bits, as far as that is known."""
        return self.factor is None or abs(self.factor) <= LARGEST

    @property
    def known(self) -> int | None:
        """The size, where it does not depend on the number of rows."""
        return None if self.of_rows else self.factor

    def __str__(self) -> str:
        size = "?" if self.factor is None else str(self.factor)
        return (f"{size}*rows" if self.factor != 1 else "rows") if self.of_rows else size


ROWS = Dimension(1, True)
UNKNOWN = Dimension(None)
Shape = tuple[Dimension, ...]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor. ``shape`` is None for a constant of unknown rank; ``values`` are those of a
    small integer tensor.
    """

    shape: Shape | None
    values: tuple[Dimension, ...] | None = None

    @property
    def rows(self) -> bool:
        """Whether it has rows, and they are apart; otherwise it is the same for every request."""
        return bool(self.shape) and self.shape[0].of_rows  # type: ignore[index]

    @property
    def rank(self) -> int:
        """How many dimensions it has.

        Raises:
            NotIndependent: where that is not known.
        """
        if self.shape is None:
            raise NotIndependent("the rank of a tensor is not known")
        return len(self.shape)

    @property
    def counts_rows(self) -> bool:
        """Whether its values depend on the number of rows."""
        return self.values is not None and any(each.of_rows for each in self.values)

    def integers(self) -> tuple[int, ...]:
        """Its values.

        Raises:
            NotIndependent: where they are not known or depend on the number of rows.
        """
        if self.values is None or any(each.known is None for each in self.values):
            raise NotIndependent("a size or an axis is not a constant")
        return tuple(each.factor for each in self.values if each.factor is not None)

    def integer(self) -> int:
        """Its only value.

        Raises:
            NotIndependent: where it is not known.
        """
        values = self.integers()
        if len(values) != 1:
            raise NotIndependent("one number is expected, there are several")
        return values[0]


CONSTANT = TensorInfo(None)
"""A constant of which nothing else is known."""


def constant(sizes: Sequence[int] | None, values: Iterable[int] | None = None) -> TensorInfo:
    """A constant of this shape; negative sizes are unknown ones. Values are remembered where
    they are few.
    """
    if sizes is not None and len(sizes) > MOST_DIMENSIONS:
        return CONSTANT
    shape = (
        None
        if sizes is None
        else tuple(Dimension(size) if size >= 0 else UNKNOWN for size in sizes)
    )
    few = (
        None
        if values is None
        else tuple(Dimension(value) for value in islice(values, MOST_VALUES + 1))
    )
    return TensorInfo(shape, few if few is None or len(few) <= MOST_VALUES else None)


def vector(values: Sequence[Dimension]) -> TensorInfo:
    """A vector of integers, which are remembered where they are few.

    Raises:
        NotIndependent: where there are many, and one depends on the number of rows.
    """
    few = len(values) <= MOST_VALUES
    if not few and any(each.of_rows for each in values):
        raise NotIndependent("it computes with the number of rows")
    return TensorInfo((Dimension(len(values)),), tuple(values) if few else None)


def rows_of(sizes: Sequence[int]) -> TensorInfo:
    """An input: its first dimension is the rows, negative sizes are unknown ones."""
    return tensor((ROWS, *(Dimension(size) if size >= 0 else UNKNOWN for size in sizes[1:])))


def tensor(shape: Sequence[Dimension]) -> TensorInfo:
    """A tensor of this shape.

    Raises:
        NotIndependent: where another dimension than the first depends on the number of rows, or
            there are too many.
    """
    if len(shape) > MOST_DIMENSIONS:
        raise NotIndependent(f"a tensor has more than {MOST_DIMENSIONS} dimensions")
    if any(each.of_rows for each in shape[1:]):
        raise NotIndependent("the rows are not the first dimension")
    return TensorInfo(tuple(shape))


def product(sizes: Iterable[Dimension]) -> Dimension:
    """The size of several dimensions together.

    Raises:
        NotIndependent: where it grows faster than the number of rows, or is larger than that of any
            tensor.
    """
    sizes = list(sizes)
    if sum(each.of_rows for each in sizes) > 1:
        raise NotIndependent("a size grows with the square of the number of rows")
    whole: int | None = 1
    for size in sizes:
        whole = None if whole is None or size.factor is None else whole * size.factor
        if whole is not None and abs(whole) > LARGEST_TENSOR:
            raise NotIndependent("a size is larger than that of any tensor")
    return Dimension(whole, any(each.of_rows for each in sizes))


def names(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())
