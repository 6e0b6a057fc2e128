"""What is known of the tensors of an exported PyTorch program.

PyTorch knows the shape of every tensor, with a symbol for the number of rows. So what is followed
is only along which axis the rows of a tensor are: its size must be a multiple of the symbol, and
each row has its own places in sequence.
"""

from collections.abc import Sequence
from typing import Any

from cloud_ml.serving.independence.tensor_info import Dimension, NotIndependent

Axis = int | None
"""Along which axis the rows of a tensor are; None for what is the same for every request."""


class KnownTensors:
    """What is known of the tensors so far, by the names of the nodes that make them.

    Attributes:
        axes: Along which axis the rows of a tensor are.
        repeats: How often the rows are repeated along their axis, where that is not once.
        batch: The symbols of the number of rows.
    """

    def __init__(self) -> None:
        self.axes: dict[str, Axis] = {}
        self.repeats: dict[str, int] = {}
        self.batch: set[Any] = set()

    def dimension(self, size: Any) -> Dimension:
        """A size of PyTorch.

        Raises:
            NotIndependent: where it depends on the number of rows and is no multiple of it.
        """
        expression = getattr(getattr(size, "node", None), "expr", size)
        if isinstance(expression, int):
            return Dimension(expression)
        found = self.batch & expression.free_symbols
        if not found:
            return Dimension(int(expression)) if expression.is_Integer else Dimension(None)
        factor = expression.coeff(next(iter(found)))
        if len(found) > 1 or not factor.is_Integer or expression - factor * next(iter(found)) != 0:
            raise NotIndependent(
                f"a size is {expression}, which is no multiple of the number of rows"
            )
        return Dimension(int(factor), True)

    def shape(self, node: Any) -> list[Dimension]:
        """The sizes of the tensor that a node makes.

        Raises:
            NotIndependent: where two of them depend on the number of rows.
        """
        shape = [self.dimension(size) for size in node.meta["val"].shape]
        if sum(size.of_rows for size in shape) > 1:
            raise NotIndependent("two dimensions depend on the number of rows")
        return shape

    def among(self, value: Any) -> list[Any]:
        """The tensors among arguments, in order."""
        if isinstance(value, list | tuple):
            return [each for part in value for each in self.among(part)]
        if hasattr(value, "meta") and hasattr(value.meta.get("val"), "shape"):
            return [value]
        return []

    def counts_rows(self, value: Any) -> bool:
        """Whether an argument is computed from the number of rows."""
        if isinstance(value, list | tuple):
            return any(self.counts_rows(each) for each in value)
        if hasattr(value, "meta") and not hasattr(value.meta.get("val"), "shape"):
            value = value.meta.get("val")
        expression = getattr(getattr(value, "node", None), "expr", None)
        return expression is not None and bool(self.batch & expression.free_symbols)

    def with_rows(self, tensors: Sequence[Any]) -> list[Any]:
        """Those of the tensors that have rows."""
        return [each for each in tensors if self.axes[each.name] is not None]

    def end(self, node: Any) -> int:
        """The place of the rows counted from the last dimension."""
        axis = self.axes[node.name]
        assert axis is not None
        return len(node.meta["val"].shape) - axis

    def single(self, node: Any) -> tuple[int, int]:
        """The axis of the rows of the first argument, which alone has rows, and its rank.

        Raises:
            NotIndependent: where another argument has rows, or none has.
        """
        first = node.args[0]
        axis = self.axes[first.name]
        if axis is None or self.with_rows(self.among([*node.args[1:], *node.kwargs.values()])):
            raise NotIndependent("a parameter of it is made of rows")
        return axis, len(first.meta["val"].shape)


def place_of_rows(shape: Sequence[Dimension]) -> Axis:
    """The first dimension that depends on the number of rows, if one does."""
    return next((place for place, size in enumerate(shape) if size.of_rows), None)
